package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// group is one transaction in the making. The committer keeps one and uses it again.
type group struct {
	s      *Store
	jobs   []job // claimed
	reader *txReader
	writes Writes
	pos    position   // tentative; Info has the committed one
	rows   []AuditRow // written by this group, for Options.Audited
	meta   *table
	audit  *table
	full   error // there is no room: work is refused, and what grows the file in bulk
	fault  error // of the file, met while a command ran
	done   int   // commands merged
	began  int64 // when the transaction was, ns on the store's clock
	sealed bool  // the commit has begun: from here on a failure leaves the outcome unknown
}

func (g *group) open(s *Store) {
	g.s = s
	g.reader = newTxReader(nil, s.schema)
	g.reader.confined = s.schema != nil
	g.reader.groups = s.groups
	g.writes.r = g.reader
	g.reader.file = s.room.disk()
}

// run takes the batch through one transaction and answers all of it; ctx is for its span. An error is the end of the committer; a panic is
// left to collapse.
func (g *group) run(ctx context.Context, batch []job) error {
	if !g.claim(batch) && len(batch) > 0 {
		return nil
	}
	g.began = g.s.mono()
	g.s.heart.begin(g.began)
	tx, err := g.begin()
	if err != nil {
		return g.give(fmt.Errorf("begin: %w", err))
	}
	err = g.apply()
	switch {
	case g.fault != nil:
		return g.give(g.fault)
	case err != nil:
		err = errors.Join(err, g.rollback(tx))
	case g.done == 0 && len(g.jobs) > 0: // nothing to write, nothing to sync
		return g.refused(tx)
	default:
		err = g.commit(ctx, tx)
	}
	return g.settle(err)
}

// release lets go of what the group has held, which may be large.
func (g *group) release() {
	clear(g.jobs)
	g.jobs = g.jobs[:0]
	g.writes.reset()
	clear(g.reader.tables)
	clear(g.reader.subs)
	g.reader.tx, g.meta, g.audit = nil, nil, nil
}

// claim keeps the commands whose callers still wait; the others are gone without a trace.
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

// begin opens the transaction and resolves what each group needs.
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

// use points the group at a transaction, from the committed position on.
func (g *group) use(tx *bolt.Tx) {
	r := g.reader
	r.tx, r.inside, r.owner = tx, false, ownService
	clear(r.tables)
	clear(r.subs)
	g.meta, g.audit = r.table(metaBucket), r.table(auditBucket)
	g.pos = g.s.info.Load().position()
}

// apply runs the commands in order. The error is of a merge, and the whole group's.
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

// step applies one command and merges what it wrote, unless it refused.
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

// recovered sorts a panic out of Apply: the file's fault, a row that does not decode, or the command's own bug.
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

// merge moves one command's buffer into the transaction, chains its audit rows and runs its Thens.
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
		return g.give(err)
	}
	g.aborted()
	g.answer()
	return nil
}

// settle publishes a committed group, or answers a failed one.
func (g *group) settle(err error) error {
	switch {
	case err != nil && !clean(err):
		return g.give(err)
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
		return g.give(g.s.Err()) // a view met a fault meanwhile: no success any more
	}
	g.s.heart.end(g.s.mono())
	g.publish()
	g.answer()
	return nil
}

func (g *group) publish() {
	g.s.owed = false
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

// give poisons the store and fails the group. The transaction is left as it is.
func (g *group) give(cause error) error {
	g.s.poison(cause, false)
	return g.failAll()
}

// collapse is give for a panic: of the file if it came out of bbolt, else of an engine's hook or of the committer.
func (g *group) collapse(v any) error {
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
