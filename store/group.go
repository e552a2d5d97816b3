package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/obs"
)

// group is one transaction in the making. The committer reuses one value.
type group struct {
	s      *Store
	jobs   []job // claimed commands
	reader *txReader
	writes Writes
	pos    position   // tentative; Info has the committed position
	rows   []AuditRow // written by this group, for Options.Audited
	meta   *table
	audit  *table
	full   error // ErrFull if there is no space: Work is refused, and Bulk that grows the file
	fault  error // a fault of the file while a command ran
	done   int   // commands merged
	began  int64 // start of the transaction, ns on the store's clock
	sealed bool  // the commit has begun: a failure leaves the outcome unknown
}

func (g *group) open(s *Store) {
	g.s = s
	g.reader = newTxReader(nil, s.schema)
	g.reader.confined = s.schema != nil
	g.reader.groups = s.groups
	g.writes.r = g.reader
	g.reader.file = s.room.disk()
}

// run processes a batch in one transaction and answers every command in it. ctx is used for the
// trace. An error ends the committer. A panic is handled by failPanic.
func (g *group) run(ctx context.Context, batch []job) error {
	if !g.claim(batch) && len(batch) > 0 {
		return nil
	}
	g.began = g.s.mono()
	g.s.heart.begin(g.began)
	tx, err := g.begin()
	if err != nil {
		return g.failGroup(fmt.Errorf("begin: %w", err))
	}
	err = g.apply()
	switch {
	case g.fault != nil:
		return g.failGroup(g.fault)
	case err != nil:
		err = errors.Join(err, g.rollback(tx))
	case g.done == 0 && len(g.jobs) > 0: // every command was refused: nothing to sync
		return g.refused(tx)
	default:
		err = g.commit(ctx, tx)
	}
	return g.settle(err)
}

// release drops references to the data of the group, which may be large.
func (g *group) release() {
	clear(g.jobs)
	g.jobs = g.jobs[:0]
	g.writes.reset()
	clear(g.reader.tables)
	clear(g.reader.subs)
	g.reader.tx, g.meta, g.audit = nil, nil, nil
}

// claim keeps the commands whose callers still wait and drops the others.
func (g *group) claim(batch []job) bool {
	now := g.s.mono()
	g.jobs, g.done, g.fault, g.sealed, g.rows = g.jobs[:0], 0, nil, false, g.rows[:0]
	for _, j := range batch {
		h := j.header()
		ended := h.ctx.Err() != nil
		if !j.claim() {
			continue
		}
		if ended {
			j.fail(g.s.late(h.ctx))
			continue
		}
		h.claimed = now
		g.jobs = append(g.jobs, j)
	}
	return len(g.jobs) > 0
}

// begin opens the transaction and the tentative layers of the engines.
func (g *group) begin() (*bolt.Tx, error) {
	g.reader.inside = true
	tx, err := g.s.db.Begin(true)
	if err != nil {
		return nil, err
	}
	g.use(tx)
	g.s.look(g.s.db, tx.Size(), false)
	for _, h := range g.s.groups {
		h.Begin()
	}
	return tx, nil
}

// use points the group at a transaction and resets it to the committed position.
func (g *group) use(tx *bolt.Tx) {
	r := g.reader
	r.tx, r.inside, r.owner = tx, false, ownService
	clear(r.tables)
	clear(r.subs)
	g.meta, g.audit = r.table(metaBucket), r.table(auditBucket)
	g.pos = g.s.info.Load().position()
}

// apply runs the commands in order. An error comes from a merge and fails the whole group.
func (g *group) apply() error {
	now := g.s.now().UnixNano()
	g.full = g.s.room.cause()
	for _, j := range g.jobs {
		if err := g.step(j, now); err != nil || g.fault != nil {
			return err
		}
	}
	return nil
}

// step applies one command and, if it succeeds, merges its writes.
func (g *group) step(j job, now int64) error {
	h := j.header()
	at := Stamp{Seq: g.pos.seq + 1, At: max(now, g.pos.at+1)}
	if g.full != nil && h.lane == Work {
		h.err = g.full
		return nil
	}
	g.reader.owner = h.owner()
	g.writes.reset()
	j.apply(g, at)
	if g.full != nil && h.lane == Bulk && h.err == nil && g.fault == nil && !g.writes.shrinks() {
		h.err = g.full
	}
	if g.fault != nil || h.err != nil {
		return nil
	}
	g.done++
	return g.merge(at)
}

// recovered handles a panic in Apply: a fault of the file, a row that cannot be decoded, or a bug
// of the command.
func (g *group) recovered(h *head) {
	v := recover()
	if v == nil {
		return
	}
	if g.reader.broken(v) {
		g.fault = fmt.Errorf("read in %s: %v", h.kind, v)
		return
	}
	if row, ok := v.(*RowError); ok {
		h.err = row
		return
	}
	h.err = &CommandError{Kind: h.kind, Cause: v, Stack: debug.Stack()}
	g.s.metrics.kind(h.kind).panics(1)
	g.s.log.Error("command_panicked", "kind", h.kind, "reason", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// merge writes the buffer of one command and its audit rows into the transaction, and runs its Then
// functions.
func (g *group) merge(at Stamp) error {
	if err := g.writes.merge(); err != nil {
		return err
	}
	g.reader.inside = true
	if err := g.chain(at.At); err != nil {
		return err
	}
	g.reader.inside = false
	g.pos.seq, g.pos.at = at.Seq, at.At
	for _, fn := range g.writes.then {
		fn()
	}
	return nil
}

// refused answers a group in which every command was refused.
func (g *group) refused(tx *bolt.Tx) error {
	g.s.heart.drop()
	if err := g.rollback(tx); err != nil {
		return g.failGroup(err)
	}
	g.aborted()
	g.answer()
	return nil
}

// settle publishes a committed group, or answers a failed one.
func (g *group) settle(err error) error {
	switch {
	case err != nil && !clean(err):
		return g.failGroup(err)
	case err != nil:
		g.s.heart.drop()
		g.aborted()
		g.s.refused(err)
		full := fullError(err)
		for _, j := range g.jobs {
			j.fail(full)
			g.s.metrics.kind(j.header().kind).full(1)
		}
		g.release()
		return nil
	case g.s.Err() != nil:
		return g.failGroup(g.s.Err()) // a view has met a fault since: do not report success
	}
	g.s.heart.end(g.s.mono())
	g.publish()
	g.answer()
	return nil
}

func (g *group) publish() {
	g.s.inUseUnset = false
	g.s.info.Store(g.s.info.Load().with(g.pos))
	if len(g.rows) > 0 {
		g.s.opt.Audited(slices.Clone(g.rows))
	}
	for _, h := range g.s.groups {
		h.Committed()
	}
	for _, j := range g.jobs {
		if j.header().err == nil {
			j.finish()
		}
	}
}

func (g *group) answer() {
	for _, j := range g.jobs {
		g.s.metrics.result(j.header())
		j.answer()
	}
	g.release()
}

func (g *group) aborted() {
	for _, h := range g.s.groups {
		h.Aborted()
	}
}

// failGroup poisons the store and fails every command of the group. The transaction is left open.
func (g *group) failGroup(cause error) error {
	g.s.poison(cause, false)
	return g.failAll()
}

// failPanic poisons the store after a panic: of the file if it came from bbolt, else of an engine's
// hook or of the committer.
func (g *group) failPanic(v any) error {
	stack := debug.Stack()
	g.s.log.Error("committer_panicked", "reason", fmt.Sprint(v), "stack", string(stack))
	if g.reader.broken(v) {
		g.s.poison(&fileFault{v}, false)
	} else {
		g.s.poison(fmt.Errorf("panic: %v", v), true)
	}
	return g.failAll()
}

func (g *group) failAll() error {
	err := g.s.Err()
	if g.sealed {
		err = g.s.unknownOutcome()
	}
	for _, j := range g.jobs {
		j.fail(err)
	}
	return g.s.Err()
}

// chain writes the audit rows of one command, if auditing is enabled.
func (g *group) chain(at int64) error {
	cfg := g.s.audit.Load()
	if !cfg.Enabled {
		return nil
	}
	for _, e := range g.writes.events {
		row, err := appendAudit(g.audit.rows, &g.pos, uint64(cfg.Retain), at, e)
		if err != nil {
			return err
		}
		if g.s.opt.Audited != nil {
			g.rows = append(g.rows, row)
		}
	}
	return nil
}

// putMeta writes the position, and the cleared clean flag if the boot of a full file could not
// write it.
func (g *group) putMeta() error {
	if g.s.inUseUnset {
		if err := putClean(g.reader.tx, false); err != nil {
			return err
		}
	}
	return g.pos.put(g.meta.rows, g.s.info.Load().position())
}

// look checks the free space once a second. It opens and rolls back a transaction: of a full store
// a write transaction, which releases the pages that no reader pins any more.
func (g *group) look() error {
	g.reader.inside = true
	tx, err := g.s.db.Begin(g.s.room.full())
	if err != nil {
		return g.failGroup(fmt.Errorf("begin: %w", err))
	}
	size := tx.Size()
	if err := tx.Rollback(); err != nil {
		return g.failGroup(err)
	}
	g.reader.inside = false
	g.s.look(g.s.db, size, true)
	return nil
}

// commit writes the position and commits the transaction, which syncs twice.
func (g *group) commit(ctx context.Context, tx *bolt.Tx) error {
	g.reader.inside = true
	if err := g.putMeta(); err != nil {
		return errors.Join(err, g.rollback(tx))
	}
	id, start := tx.ID(), g.s.mono()
	span := g.span(ctx)
	g.sealed = true
	err := tx.Commit()
	took := time.Duration(g.s.mono() - start)
	if err != nil && clean(err) && g.visible(id) {
		err = fmt.Errorf("the meta page was written: %v", err) // so the error is no longer clean
	}
	g.reader.inside = false
	span.Fail(err)
	span.End()
	if err == nil {
		g.s.metrics.committed(phasesOf(tx.Stats(), time.Duration(start-g.began), took), len(g.jobs))
	}
	if took > commitStuck && g.s.opt.Slow != nil {
		g.s.opt.Slow("commit", took)
	}
	return err
}

// span begins the trace of one commit and links it to the requests that wait for it.
func (g *group) span(ctx context.Context) obs.Span {
	if g.s.opt.Tracer == nil {
		return obs.Span{}
	}
	_, span := g.s.opt.Tracer.Start(ctx, "store.commit", ownService)
	span.Int("commands", len(g.jobs))
	for _, j := range g.jobs {
		span.Link(j.header().ctx)
	}
	return span
}

// visible reports whether readers see transaction id. It returns true if that is unknown.
func (g *group) visible(id int) bool {
	tx, err := g.s.db.Begin(false)
	if err != nil {
		return true
	}
	return tx.ID() >= id || tx.Rollback() != nil
}

func (g *group) rollback(tx *bolt.Tx) error {
	g.reader.inside = true
	err := tx.Rollback()
	g.reader.inside = false
	return err
}
