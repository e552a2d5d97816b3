package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// group is one transaction in the making. The committer reuses one value.
type group struct {
	s      *Store
	jobs   []job // claimed commands
	reader *txReader
	writes Writes
	pos    position   // tentative; Info has the committed position
	rows   []AuditRow // written by this group, for Options.Audited
	pen    pen        // writes the rows of the group
	meta   ownBucket
	audit  ownBucket
	full   error // ErrFull if there is no space: Work is refused, and Bulk that grows the file
	fault  error // a fault of the file while a command ran
	done   int   // commands merged
	began  int64 // start of the transaction, ns on the store's clock
	sealed bool  // the commit has begun: a failure leaves the outcome unknown
	rest   []job // claimed commands that had no place in the group: the next group
	turn   turn  // of a node of a cluster
}

func (g *group) open(s *Store) {
	g.s = s
	g.reader = newTxReader(nil, s.schema)
	g.reader.confined = s.schema != nil
	g.reader.groups = s.groups
	g.writes.r = g.reader
	g.pen.capture = s.opt.Replicator != nil || s.opt.Tap != nil
	g.reader.file = s.room.disk()
}

// run processes a batch and answers every command in it: in one transaction, but on a node of a
// cluster in as many as its entries need. ctx is used for the trace and the proposal. An error ends
// the committer. A panic is handled by failPanic.
func (g *group) run(ctx context.Context, batch []job) error {
	if !g.claim(batch) && len(batch) > 0 {
		return nil
	}
	for {
		if err := g.transact(ctx); err != nil || len(g.rest) == 0 {
			return err
		}
		g.begun(g.rest)
	}
}

// begun starts a group of claimed commands.
func (g *group) begun(jobs []job) {
	g.jobs = append(g.jobs[:0], jobs...)
	clear(g.rest)
	g.rest, g.done, g.fault, g.sealed, g.rows = g.rest[:0], 0, nil, false, g.rows[:0]
}

// transact runs the commands of the group in one transaction and answers them.
func (g *group) transact(ctx context.Context) error {
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
		return g.settle(g.failed(errors.Join(err, g.rollback(tx))))
	case g.done == 0 && len(g.jobs) > 0: // every command was refused: nothing to sync
		return g.refused(tx)
	}
	return g.settle(g.commit(ctx, tx))
}

// release drops references to the data of the group, which may be large.
func (g *group) release() {
	clear(g.jobs)
	g.jobs = g.jobs[:0]
	g.writes.reset()
	clear(g.reader.tables)
	clear(g.reader.subs)
	g.reader.tx, g.meta.table, g.audit.table = nil, nil, nil
}

// claim keeps the commands whose callers still wait and drops the others.
func (g *group) claim(batch []job) bool {
	now := g.s.mono()
	g.begun(nil)
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
	g.meta, g.audit = ownBucket{r.table(metaBucket), &g.pen}, ownBucket{r.table(auditBucket), &g.pen}
	g.pen.reset()
	g.pos = g.s.info.Load().position()
}

// apply runs the commands in order. An error comes from a merge and fails the whole group.
func (g *group) apply() error {
	now := g.s.now().UnixNano()
	g.full = g.s.room.cause()
	for i, j := range g.jobs {
		if err := g.step(j, now); err != nil || g.fault != nil {
			return err
		}
		if g.s.opt.Replicator != nil && g.pen.bytes() >= maxGroupBytes {
			g.rest = append(g.rest, g.jobs[i+1:]...)
			g.jobs = g.jobs[:i+1]
			return nil
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
	if g.s.opt.Replicator != nil && h.err == nil && g.fault == nil {
		h.err = g.writes.bounded()
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
	if err := g.writes.merge(&g.pen); err != nil {
		return err
	}
	g.reader.inside = true
	if err := g.chain(at.At); err != nil {
		return err
	}
	if err := g.pen.names.write(g.reader.tx); err != nil {
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

func (g *group) publish() {
	g.s.inUseUnset = false
	g.s.info.Store(g.s.info.Load().with(g.pos))
	if g.turn.placed {
		g.publishLocal()
	}
	for _, h := range g.s.groups {
		h.Committed()
	}
	for _, j := range g.jobs {
		if j.header().err == nil {
			j.finish()
		}
	}
	if len(g.rows) > 0 { // last: who reads a row finds what it tells of
		g.s.opt.Audited(slices.Clone(g.rows))
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
	for _, j := range g.rest {
		j.fail(g.s.Err())
	}
	g.turnOver()
	return g.s.Err()
}

// chain writes the audit rows of one command, if auditing is enabled.
func (g *group) chain(at int64) error {
	cfg := g.s.audit.Load()
	if !cfg.Enabled {
		return nil
	}
	for _, e := range g.writes.events {
		row, err := appendAudit(&g.audit, &g.pos, uint64(cfg.Retain), at, e)
		if err != nil {
			return err
		}
		if g.s.opt.Audited != nil {
			g.rows = append(g.rows, row)
		}
	}
	return nil
}
