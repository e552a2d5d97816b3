package wallet

import (
	"context"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Batch has operations done in their order, in one record of the journal and under one key: all or none of them if atomic, else each by
// itself. An op that the rules refuse is part of the answer, or with atomic an *IndexError around its *ledger.Reject. The rest is as with Post.
func (e *Engine) Batch(ctx context.Context, by engines.Actor, key, corrID string, atomic bool, ops []Request) (Answer, error) {
	return e.counted(record.OpBatch, func() (Answer, error) {
		if err := checkKey(key); err != nil {
			return Answer{}, err
		}
		if err := e.checkBatch(ctx, by, ops); err != nil {
			return Answer{}, err
		}
		return e.do(ctx, &ask{
			by: by, key: key, corrID: corrID, op: record.OpBatch, print: e.prints.batch(atomic, ops), ops: ops, atomic: atomic,
		})
	})
}

// checkBatch finds the first op that is malformed or not allowed.
func (e *Engine) checkBatch(ctx context.Context, by engines.Actor, ops []Request) error {
	switch {
	case len(ops) == 0:
		return &FieldError{"ops", "is empty: must have 1 or more"}
	case len(ops) > MaxBatchOps:
		return &LimitError{"batch_max_ops"}
	}
	for i := range ops {
		r := &ops[i]
		if r.Op == record.OpFlags || r.Op == record.OpAsset {
			return &IndexError{i, &FieldError{"op", "does not go into a batch"}}
		}
		if err := r.check(); err != nil {
			return &IndexError{i, err}
		}
		if err := mayOp(by, r.Op); err != nil {
			return &IndexError{i, err}
		}
	}
	for i := range ops {
		if err := e.authorize(ctx, by, &ops[i]); err != nil {
			return &IndexError{i, err}
		}
	}
	return nil
}

// newBatchJob judges what the ops are bounded by, takes room for them, and makes their job.
func (e *Engine) newBatchJob(ctx context.Context, by engines.Actor, atomic bool, ops []Request) (*job, error) {
	set := e.live()
	if len(ops) > set.BatchMaxOps {
		return nil, &LimitError{"batch_max_ops"}
	}
	j := &job{e: e, op: ledger.Op{Code: record.OpBatch, Atomic: atomic, Limits: set.limits, Ops: make([]ledger.Op, len(ops))}, weight: len(ops)}
	for i := range ops {
		op, err := e.newOp(ctx, by, &ops[i])
		if err != nil {
			return nil, &IndexError{i, err}
		}
		j.op.Ops[i] = op
	}
	j.wantsAll(set.limits.Monotonic)
	scope := scopeOf(by)
	if !e.batched.take(scope, len(ops), set.BatchInflightOps, set.BatchMaxOps) {
		return nil, flow.ErrBusy
	}
	j.room, j.scope = len(ops), scope
	return j, nil
}

// room counts the ops of all batches under way, in all and by who sent them.
type room struct {
	mu   *flow.Mutex    // covers the fields
	used int            // guarded by mu
	by   map[string]int // likewise; who has none is not in it
}

// take takes n places of most, or none. One client leaves room for a batch of another, of up to spare ops, where most is so much that he can
// have one under way himself all the same.
func (r *room) take(scope string, n, most, spare int) bool {
	share := most
	if most >= 2*spare {
		share = most - spare
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > most || r.by[scope]+n > share {
		return false
	}
	if r.by == nil {
		r.by = map[string]int{}
	}
	r.used += n
	r.by[scope] += n
	return true
}

func (r *room) give(scope string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	if r.by[scope] -= n; r.by[scope] == 0 {
		delete(r.by, scope)
	}
}
