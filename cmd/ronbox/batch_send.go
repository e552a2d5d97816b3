package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// send makes one request until there is an answer, and gives what became of its rows. With sent an earlier run may have
// made it before.
func (b *batchRun) send(ctx context.Context, step *batchStep, sent bool) (*batchStep, error) {
	rows, ops, err := b.ops(step)
	if err != nil {
		return nil, err
	}
	key, mode := b.key(rows), b.modeOf(rows)
	var got client.BatchPosted
	lost := sent
	err = b.repeat(ctx, fmt.Sprintf("request %d", step.No), func() (err error) {
		got, err = b.node.Batch(ctx, key, wire.Batch{Mode: mode, Ops: ops})
		lost = lost || unknownOutcome(err)
		return err
	})
	if isCode(err, codeIdem) {
		return &batchStep{No: step.No, Settled: true, Again: step.Rows, Known: step.Rows, Ledger: b.marked()}, nil
	}
	end, refused := b.refusedWhole(step, rows, err)
	if err != nil && !refused {
		if p, at, named := opOf(err, rows); named {
			err = fmt.Errorf("line %d: %w", b.rows[at].line, err)
		} else if p == nil {
			return nil, batchFailure(err, key, lost)
		}
		if lost || client.Retryable(err) {
			return nil, batchFailure(err, key, lost)
		}
		nothing := &batchStep{No: step.No, Settled: true, Again: step.Rows, Ledger: b.marked()} // so that the file may be corrected
		return nil, errors.Join(batchFailure(err, key, lost), b.state.write(nothing))
	}
	if !refused {
		if end, err = b.judge(step, rows, got.Answer); err != nil {
			return nil, err
		}
	}
	if lost { // even of a replay: it may be that of a second sending
		if err := b.recall(ctx, step, end); err != nil {
			return nil, batchFailure(fmt.Errorf("find out what was done of request %d: %w", step.No, err), key, lost)
		}
	}
	if err := b.spentSince(ctx, step, end); err != nil {
		return nil, batchFailure(fmt.Errorf("find out whether another did what was refused of request %d: %w", step.No, err), key, true)
	}
	end.Ledger = b.marked()
	return end, nil
}

// spentSince takes back what was refused before its nonce was looked at where the payer has spent since the step was made:
// whoever took the nonce may have done the row. A file of all or none falls with one row, whatever the others would have
// met, so there each payer is asked for, and all rows wait again.
func (b *batchRun) spentSince(ctx context.Context, step, end *batchStep) error {
	for payer := range step.Nonces {
		delete(b.next, payer) // look it up, once each
	}
	open := map[int]bool{}
	for _, r := range end.Refused {
		row := &b.rows[r.Row]
		if !row.auto || b.mode != modeAtomic && r.Reason != record.Expired.String() && r.Reason != record.AccountLocked.String() {
			continue
		}
		n, err := b.nonce(ctx, row.payer)
		if err != nil {
			return err
		}
		if n != step.Nonces[row.payer] {
			open[r.Row] = true
		}
	}
	if len(open) > 0 && b.mode == modeAtomic {
		end.Again, end.Refused = step.Rows, nil
		return nil
	}
	again, err := rowsOf(end.Again, len(b.rows))
	end.Refused = slices.DeleteFunc(end.Refused, func(r batchRefusal) bool { return open[r.Row] })
	end.Again = spans(slices.Sorted(slices.Values(slices.AppendSeq(again, maps.Keys(open)))))
	return err
}

// judge sorts the answer's results. A receipt from before the step is of a request that another run made, and what was done
// then has been counted already, perhaps as another of the rows that say the same.
func (b *batchRun) judge(step *batchStep, rows []int, answer wire.BatchAnswer) (*batchStep, error) {
	end := &batchStep{No: step.No, Settled: true}
	if len(answer.Results) != len(rows) {
		return nil, failed(exitBad, "node_inconsistent", "", "the node answered %d operations of %d", len(answer.Results), len(rows))
	}
	var again []int
	for k, i := range rows {
		switch r := answer.Results[k]; {
		case r.Index != k:
			return nil, failed(exitBad, "node_inconsistent", "", "the node answered operation %d in the place of %d", r.Index, k)
		case r.Status == http.StatusOK && r.Error == nil:
			receipt, err := record.ParseReceipt(r.Receipt)
			if err != nil {
				return nil, unsoundReceipt(err)
			}
			if b.rows[i].auto && step.Ledger != nil && receipt.Seq <= step.Ledger.Seq {
				again = append(again, i)
			}
			b.seen(receipt)
		case r.Error == nil:
			return nil, failed(exitBad, "node_inconsistent", "", "the node refused operation %d and does not say why", k)
		case r.Error.Code == codeNonce && b.rows[i].auto:
			again = append(again, i)
		default:
			end.Refused = append(end.Refused, refusedRow(i, b.rows[i].line, r.Error))
		}
	}
	end.Again = spans(again)
	return end, nil
}

// refusedWhole takes the refusal of a request that falls with one of its rows as that of the row. The others are sent
// again, unless the whole file is done or none of it.
func (b *batchRun) refusedWhole(step *batchStep, rows []int, err error) (*batchStep, bool) {
	p, at, named := opOf(err, rows)
	if !named || b.modeOf(rows) != modeAtomic {
		return nil, false
	}
	end := &batchStep{No: step.No, Settled: true}
	if p.Code == codeNonce && b.rows[at].auto {
		end.Again = step.Rows
		return end, true
	}
	if b.mode != modeAtomic && !byRules(p.Reason) {
		return nil, false
	}
	if b.mode != modeAtomic {
		end.Refused = []batchRefusal{refusedRow(at, b.rows[at].line, &wire.BatchError{Code: p.Code, Reason: p.Reason})}
		end.Again = spans(slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return i == at }))
		return end, true
	}
	for _, i := range rows {
		e := &wire.BatchError{Code: "ABORTED", Reason: "aborted"}
		if i == at {
			e = &wire.BatchError{Code: p.Code, Reason: p.Reason}
		}
		end.Refused = append(end.Refused, refusedRow(i, b.rows[i].line, e))
	}
	return end, true
}

// byRules tells that the ledger's rules refused a row, which says nothing against the rest of its file.
func byRules(reason string) bool {
	for r := record.Accepted; r.Known(); r++ {
		if r.Refused() && r.String() == reason {
			return true
		}
	}
	return false
}

// opOf finds the row that a refusal of a whole request is about, if it is about one.
func opOf(err error, rows []int) (p *wire.Problem, row int, named bool) {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return nil, 0, false
	}
	n, ok := p.Details["index"].(float64) // as JSON has it
	if !ok || n < 0 || int(n) >= len(rows) {
		return p, 0, false
	}
	return p, rows[int(n)], true
}

const runAgain = "run the same command again: it goes on where this one ended, and does nothing twice"

// batchFailure says that the same command goes on where this one ended.
func batchFailure(err error, key string, lost bool) error {
	f := &failure{verdict: judge(err), err: err, details: map[string]any{"idempotency_key": key}, unsettled: lost}
	if lost || client.Retryable(err) {
		f.next = runAgain
	}
	return f
}
