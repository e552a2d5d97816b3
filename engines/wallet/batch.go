package wallet

import (
	"context"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Batch carries out ops in their order, in one record of the journal and under one key: all or none
// of them if atomic, else each by itself. It keeps ops. An op that the rules refuse is part of the
// answer, or of an atomic batch an *IndexError around its *ledger.Reject. Otherwise it is as Post.
func (e *Engine) Batch(
	ctx context.Context,
	by engines.Actor,
	key, corrID string,
	atomic bool,
	ops []ledger.Op,
) (Answer, error) {
	j := e.newJob(by, key, corrID, ledger.Op{Code: record.OpBatch, Atomic: atomic, Ops: ops})
	j.batch = true
	return e.do(ctx, j)
}

// checkBatch is check for a batch. It returns an error for the first op that is malformed or not
// allowed.
func (e *Engine) checkBatch(ctx context.Context, j *job) error {
	by, ops := j.by, j.op.Ops
	switch {
	case len(ops) == 0:
		return &FieldError{"ops", "is empty: must have 1 or more"}
	case len(ops) > MaxBatchOps:
		return &LimitError{"batch_max_ops"}
	}
	var may record.Op // the op of the last one, which by may do
	for i := range ops {
		op := &ops[i]
		if op.Code == record.OpFlags || op.Code == record.OpAsset {
			return &IndexError{i, &FieldError{"op", "does not go into a batch"}}
		}
		if err := check(op); err != nil {
			return &IndexError{i, err}
		}
		if op.Code == may {
			continue
		}
		if err := mayOp(by, op.Code); err != nil {
			return &IndexError{i, err}
		}
		may = op.Code
	}
	for i := range ops {
		if err := e.authorize(ctx, by, &ops[i]); err != nil {
			return &IndexError{i, err}
		}
	}
	j.op.Fingerprint, j.weight = e.prints.batch(j.op.Atomic, ops), len(ops)
	for i := range ops {
		ops[i].Idem = j.op.Dedupe.Key // so that a statement shows which request paid
		if j.payer == "" {
			j.payer = payerOf(&ops[i])
		}
	}
	return nil
}

// boundBatch is bound for each op of j, and takes room for them.
func (e *Engine) boundBatch(ctx context.Context, j *job) error {
	set, ops := e.set.Load(), j.op.Ops
	if len(ops) > set.BatchMaxOps {
		return &LimitError{"batch_max_ops"}
	}
	j.op.Limits = set.limits
	for i := range ops {
		if err := e.bound(ctx, j.by, &ops[i]); err != nil {
			return &IndexError{i, err}
		}
	}
	if !e.batched.take(j.op.Principal, len(ops), set.BatchInflightOps, set.BatchMaxOps) {
		return flow.ErrBusy
	}
	j.room = len(ops)
	return nil
}

// room counts the ops of all batches under way, in total and by principal.
type room struct {
	mu   *flow.Mutex    // covers the fields
	used int            // guarded by mu
	by   map[string]int // likewise; without principals that have no ops
}

// take takes n places of most, or none. One principal leaves room for a batch of another, of up to
// spare ops, if most is large enough that it can have a batch under way itself all the same.
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
