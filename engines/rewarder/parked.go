package rewarder

import (
	"context"
	"math"
	"strconv"
	"strings"

	"ronbox/engines/ledger"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// maxNamed bounds the accounts that one audit row names.
const maxNamed = 8

// parkedDetail returns the members of an audit row about the payees that payments leave parked, or
// nil if there are none.
func parkedDetail(done []payment) map[string]string {
	n, named := 0, []string{}
	for i := range done {
		for k := range done[i].all {
			if row := done[i].row(k); row.Result == IntentParked {
				if n++; n <= maxNamed {
					named = append(named, row.Actor+" ("+row.Reason+")")
				}
			}
		}
	}
	if n == 0 {
		return nil
	}
	return map[string]string{"parked": strconv.Itoa(n), "accounts": strings.Join(named, ", ")}
}

// payParked pays the parked payees of a run, each under its own key, and settles the run. Payees
// that the ledger still refuses stay parked. If all payees of a chunk are parked, they are paid
// under the key of the chunk: an earlier call under that key may still be executed.
func (e *Engine) payParked(ctx context.Context, j job, m *material, run Run) error {
	for from := uint64(0); ; {
		if e.draining.Load() {
			return nil
		}
		rows, next, err := e.nextParked(ctx, j, from, maxAcks)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			settled, err := e.settled(ctx, j)
			if err != nil || settled {
				return err
			}
			from = 0
			continue
		}
		c := uint32(rows[0].Index / record.ChunkRows)
		whole, err := e.isParked(ctx, j, c)
		if err != nil {
			return err
		}
		var done []payment
		if whole {
			next = uint64(c+1) * record.ChunkRows
			p, err := e.payChunk(ctx, j, m, &run, c)
			if err != nil {
				return err
			}
			done = append(done, p)
		} else if done, next, err = e.payEach(ctx, j, m, &run, rows, next); err != nil && len(done) == 0 {
			return err
		}
		e.step("settled_payee")
		if _, failed := e.unpark(ctx, j, done, whole); failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		from = next
	}
}

// payEach pays parked payees of one chunk, each under its own key. It returns the payees that were
// decided before an error, and the index at which to continue.
func (e *Engine) payEach(
	ctx context.Context, j job, m *material, run *Run, rows []Parked, next uint64,
) (done []payment, _ uint64, err error) {
	c := rows[0].Index / record.ChunkRows
	for _, row := range rows {
		if row.Index/record.ChunkRows != c {
			return done, row.Index, nil
		}
		p := payment{first: row.Index, all: []record.Allocation{{Actor: row.Actor, Amount: amountOf(row.Amount)}}}
		key := record.PayeeKey(j.key, run.Commitment, row.Index, row.Actor)
		if err := e.settle(ctx, j, m, run, ledger.Once{ID: key, Digest: run.Commitment}, &p); err != nil {
			return done, row.Index, err
		}
		done = append(done, p)
	}
	return done, next, nil
}

// nextParked reads up to n parked payees of a run from an index on, and the index at which to
// continue.
func (e *Engine) nextParked(ctx context.Context, j job, from uint64, n int) (rows []Parked, next uint64, err error) {
	if from > math.MaxUint32 {
		return nil, from, nil
	}
	err = e.view(ctx, func(r store.Reader) error {
		rows, next = nil, math.MaxUint32+1
		for at, row := range parked.Range(r, piece{j.key, uint32(from)}, piece{j.key, math.MaxUint32}) {
			if len(rows) == n {
				next = uint64(at.n)
				break
			}
			if row.Result == IntentParked {
				rows = append(rows, row)
			}
		}
		return nil
	})
	return rows, next, err
}

// isParked reports whether all payees of a chunk are parked.
func (e *Engine) isParked(ctx context.Context, j job, c uint32) (yes bool, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		yes = must(r, intents, piece{j.key, c}).Result == IntentParked
		return nil
	})
	return yes, err
}

// unpark records the outcome of payments to parked payees.
func (e *Engine) unpark(ctx context.Context, j job, done []payment, whole bool) (Run, error) {
	c := change{kind: "pay_parked", from: unpaid}
	return e.change(ctx, store.Work, j, c, func(r store.Reader, run *Run, w *store.Writes) error {
		t := tallyOf(r, run)
		for i := range done {
			p := &done[i]
			if whole {
				intents.Put(w, piece{j.key, p.intent.Index}, p.intent)
			}
			for k := range p.all {
				row := p.row(k)
				at := piece{j.key, uint32(row.Index)}
				if has := must(r, parked, at); has.Result != IntentParked {
					continue
				}
				if row.Result != IntentParked {
					t.unpark(&row)
				}
				parked.Put(w, at, row)
			}
		}
		t.enter(run)
		return nil
	})
}

// settled ends a pass over the parked payees. It returns false if another pass is due.
func (e *Engine) settled(ctx context.Context, j job) (bool, error) {
	c := change{kind: "settle_run", from: unpaid}
	run, err := e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		if run.Acked != run.Transactions {
			return errGone
		}
		if !settleRun(run) {
			return nil
		}
		todos.Delete(w, j.todo(toPay))
		detail := j.detail()
		detail["parked"] = strconv.FormatUint(run.Parked, 10)
		w.Audit(Call{}.event("ledger.emit", "", detail))
		return nil
	})
	if err == nil {
		e.publish(run)
	}
	return run.State == Settled, err
}

// Parked reads a page of the payees of a run that were parked, at most limit, from an index on.
// Errors: ErrNotFound, *ConflictError.
func (e *Engine) Parked(ctx context.Context, tenant, epoch string, from uint64, limit int) (ParkedPage, error) {
	page := ParkedPage{Parked: []Parked{}}
	run, err := e.final(ctx, tenant, epoch)
	if err != nil || from > math.MaxUint32 {
		return page, err
	}
	err = e.view(ctx, func(r store.Reader) error {
		for at, row := range parked.Range(r, piece{run.RunKey, uint32(from)}, piece{run.RunKey, math.MaxUint32}) {
			if len(page.Parked) == limit {
				page.Next = uint64(at.n)
				break
			}
			page.Parked = append(page.Parked, row)
		}
		return nil
	})
	return page, err
}
