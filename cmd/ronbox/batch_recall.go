package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

// ledgerMark is a place in a ledger that was seen: a node that has another root there is another node, or has lost
// what was done.
type ledgerMark struct {
	Seq   uint64 `json:"seq"`
	Batch uint64 `json:"batch"`
	Root  string `json:"root"` // of the batch
}

// mayNot tells that the token allows no such question.
func mayNot(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Status == http.StatusForbidden
}

// locate finds out where the ledger ends before the first request, and in a later run that it is still the one that the
// state tells of. A token that may not ask leaves it unknown.
func (b *batchRun) locate(ctx context.Context) error {
	if b.mark.Batch == 0 {
		err := b.repeat(ctx, "look at the ledger", func() error {
			h, err := b.node.LedgerHead(ctx)
			b.mark = ledgerMark{h.Seq, h.Batches, h.LastRoot}
			return err
		})
		if mayNot(err) {
			return nil
		}
		return err
	}
	var list wire.Roots
	err := b.repeat(ctx, "look at the ledger", func() (err error) {
		list, err = b.node.Roots(ctx, b.mark.Batch-1, 1)
		return err
	})
	if mayNot(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(list.Roots) == 0 || list.Roots[0].Batch != b.mark.Batch || list.Roots[0].Root != b.mark.Root {
		return failed(exitFailed, "other_ledger",
			"to pay it on this node name another file with --state; a restored one lacks what `ronbox wallet history` does not show",
			"the state tells of another ledger than this node's: it is another node's, or that of this one before it was restored")
	}
	return nil
}

// marked is the mark as a step keeps it, nil where it is not known.
func (b *batchRun) marked() *ledgerMark {
	if b.mark == (ledgerMark{}) {
		return nil
	}
	m := b.mark
	return &m
}

// seen remembers the newest record that is known of the ledger.
func (b *batchRun) seen(r record.Receipt) {
	if r.Seq > b.mark.Seq {
		b.mark = ledgerMark{r.Seq, r.Batch, r.Root.String()}
	}
}

// recall takes the rows that end says were not done and finds those that were, when step was sent before and no answer
// came: the node may have forgotten the key since, or somebody else may ask now, and then a refusal of what is sent
// again says nothing about the first time. What was done after step was written stands in the statements.
func (b *batchRun) recall(ctx context.Context, step, end *batchStep) error {
	rows, ops, err := b.ops(step)
	if err != nil {
		return err
	}
	again, err := rowsOf(end.Again, len(b.rows))
	if err != nil {
		return err
	}
	open := set(again)
	for _, r := range end.Refused {
		open[r.Row] = true
	}
	type place struct{ account, asset string }
	sought := map[place]map[int]wire.BatchOp{}
	for k, i := range rows {
		if !open[i] {
			continue
		}
		account, asset, err := b.statementOf(ctx, b.node, &ops[k])
		if err != nil {
			return err
		}
		if account == "" {
			continue
		}
		at := place{account, asset}
		if sought[at] == nil {
			sought[at] = map[int]wire.BatchOp{}
		}
		sought[at][i] = ops[k]
	}
	done := map[int]bool{}
	for at, ops := range sought {
		err := b.trace(ctx, b.node, at.account, at.asset, func(p posting) bool {
			if step.Ledger != nil && p.Seq <= step.Ledger.Seq { // counted before the step was made
				return false
			}
			for i, op := range ops {
				if b.ours(&op, &p) {
					done[i] = true
					delete(ops, i)
					b.seen(p.Receipt)
					break
				}
			}
			return len(ops) > 0
		})
		if err != nil && !undeclared(err) {
			return err
		}
	}
	end.Again = spans(slices.DeleteFunc(again, func(i int) bool { return done[i] }))
	end.Refused = slices.DeleteFunc(end.Refused, func(r batchRefusal) bool { return done[r.Row] })
	return nil
}

// ours tells whether a posting is that of an operation of this run: another run, or a person, may have paid in the same
// words with the same nonce. Who ended a hold is not asked: it ends once.
func (b *batchRun) ours(op *wire.BatchOp, p *posting) bool {
	return (op.Hold != "" || strings.HasPrefix(p.Idem, b.owner)) && isPosting(op, p)
}

// overtaken settles a request of an earlier run whose payers have spent since, if the statements may be read: sent again,
// a row that was done with another nonce might get one that is free. Where none has spent, none of it was done, and an
// atomic one falls with its first row.
func (b *batchRun) overtaken(ctx context.Context, open *batchStep) (*batchStep, error) {
	if open == nil || b.mode == modeAtomic {
		return open, nil
	}
	spent := false
	for payer, first := range open.Nonces {
		delete(b.next, payer)
		next, err := b.nonce(ctx, payer)
		if mayNot(err) {
			return open, nil
		}
		if err != nil {
			return open, err
		}
		spent = spent || next != first
	}
	if !spent {
		return open, nil
	}
	end := &batchStep{No: open.No, Settled: true, Again: open.Rows}
	if err := b.recall(ctx, open, end); mayNot(err) {
		return open, nil
	} else if err != nil {
		return open, err
	}
	end.Ledger = b.marked()
	if err := b.state.write(end); err != nil {
		return open, err
	}
	return nil, b.settle(open, end)
}
