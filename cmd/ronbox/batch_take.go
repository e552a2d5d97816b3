package main

import (
	"context"

	"ronbox/httpapi/wire"
)

// take chooses the rows of the next request and the nonces that they begin with.
func (b *batchRun) take(ctx context.Context) (*batchStep, error) {
	step := &batchStep{No: b.no, Nonces: map[string]uint64{}, Ledger: b.marked()}
	var rows []int
	bytes, used := 0, map[string]int{}
	singly := b.narrow(b.pending[0])
	for _, i := range b.pending[:min(len(b.pending), lookAhead)] {
		r := &b.rows[i]
		if w := b.width[r.payer]; r.payer != "" && (singly && used[r.payer] > 0 || !singly && b.narrow(i) || w > 0 && used[r.payer] == w) {
			continue
		}
		if bytes += opBytes(&r.op); len(rows) == b.most || bytes > maxChunkBytes {
			break
		}
		rows, used[r.payer] = append(rows, i), used[r.payer]+1
		if _, known := step.Nonces[r.payer]; r.auto && !known {
			n, err := b.nonce(ctx, r.payer)
			if err != nil {
				return nil, err
			}
			step.Nonces[r.payer] = n
		}
	}
	step.Rows = spans(rows)
	return step, nil
}

// narrow tells that a row goes into a request only where each payer has one row: its payer's last one was refused.
func (b *batchRun) narrow(i int) bool { return b.width[b.rows[i].payer] == 1 }

// modeOf is how a request of rows is done. Rows that take nonces of their payer one after the other stand or fall together.
func (b *batchRun) modeOf(rows []int) string {
	seen := map[string]bool{}
	for _, i := range rows {
		if r := &b.rows[i]; r.auto && seen[r.payer] {
			return modeAtomic
		} else if r.auto {
			seen[r.payer] = true
		}
	}
	return b.mode
}

// opBytes is at least what an operation takes in a body: names, quotes and numbers beside what varies.
func opBytes(op *wire.BatchOp) int {
	const fixed = 220
	return fixed + len(op.From) + len(op.To) + len(op.Hold) + 6*len(op.Memo) + len(op.ValidUntil) + len(op.AmountMinor)
}

func (b *batchRun) nonce(ctx context.Context, payer string) (uint64, error) {
	if n, known := b.next[payer]; known {
		return n, nil
	}
	err := b.repeat(ctx, "look up a nonce", func() error {
		acc, err := b.node.Account(ctx, payer)
		b.next[payer] = acc.NextNonce
		return err
	})
	if err != nil {
		delete(b.next, payer)
	}
	return b.next[payer], err
}

// ops are the operations of a step with their nonces.
func (b *batchRun) ops(step *batchStep) (rows []int, ops []wire.BatchOp, err error) {
	rows, err = rowsOf(step.Rows, len(b.rows))
	next := map[string]uint64{}
	for payer, n := range step.Nonces {
		next[payer] = n
	}
	for _, i := range rows {
		r := &b.rows[i]
		op := r.op
		if r.auto {
			op.Nonce = next[r.payer]
			next[r.payer]++
		}
		ops = append(ops, op)
	}
	return rows, ops, err
}
