package wallet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	ledgerapi "ronbox/httpapi/ledger"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

// send sends one request until there is an answer, and returns the result of its rows. With sent an earlier run may have
// sent it before.
func (b *batchRun) send(ctx context.Context, step *batchStep, sent bool) (*batchStep, error) {
	rows, ops, err := b.ops(step)
	if err != nil {
		return nil, err
	}
	b.early = 0
	key, mode := b.key(rows), b.modeOf(rows)
	var got walletapi.BatchPosted
	lost := sent
	err = b.Repeat(ctx, fmt.Sprintf("request %d", step.No), func() (err error) {
		got, err = b.node.Batch(ctx, key, walletapi.Batch{Mode: mode, Ops: ops})
		lost = lost || outcomeUnknown(err)
		return err
	})
	if hasCode(err, codeIdem) {
		return &batchStep{No: step.No, Settled: true, Again: step.Rows, Known: step.Rows, Ledger: b.currentMark()}, nil
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
		nothing := &batchStep{No: step.No, Settled: true, Again: step.Rows, Ledger: b.currentMark()} // so that the file may be corrected
		return nil, errors.Join(batchFailure(err, key, lost), b.state.write(nothing))
	}
	if !refused {
		if end, err = b.classifyResults(step, rows, got.Answer); err != nil {
			return nil, err
		}
	}
	if sent && got.Replayed {
		b.early = end.done(rows)
	}
	if lost { // even of a replay: it may be that of a second sending
		was := end.done(rows)
		if err := b.findDone(ctx, step, end); err != nil {
			return nil, batchFailure(fmt.Errorf("find out what was done of request %d: %w", step.No, err), key, lost)
		}
		if sent {
			b.early += end.done(rows) - was
		}
	}
	if err := b.spentSince(ctx, step, end); err != nil {
		return nil, batchFailure(fmt.Errorf("find out whether another did what was refused of request %d: %w", step.No, err), key, true)
	}
	end.Ledger = b.currentMark()
	return end, nil
}

// spentSince makes refused rows pending again where their payer has spent since the request was made: the other writer may
// have paid the row, and the wallet refused it for a reason that it checks before the nonce. An atomic file falls with one
// row, whatever the result of the others would have been, so there the nonce of each payer is looked up, and all rows are
// pending again.
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
	again, err := expandSpans(end.Again, len(b.rows))
	end.Refused = slices.DeleteFunc(end.Refused, func(r refusedRow) bool { return open[r.Row] })
	end.Again = toSpans(slices.Sorted(slices.Values(slices.AppendSeq(again, maps.Keys(open)))))
	return err
}

// classifyResults sorts the results of an answer. A receipt from before the request is of a request of another run, and was
// counted already, perhaps for another row of the same terms.
func (b *batchRun) classifyResults(step *batchStep, rows []int, answer walletapi.BatchAnswer) (*batchStep, error) {
	end := &batchStep{No: step.No, Settled: true}
	if len(answer.Results) != len(rows) {
		return nil, cli.Fail(cli.ExitBad, "node_inconsistent", "", "the node answered %d operations of %d", len(answer.Results), len(rows))
	}
	var again []int
	for k, i := range rows {
		switch r := answer.Results[k]; {
		case r.Index != k:
			return nil, cli.Fail(cli.ExitBad, "node_inconsistent", "", "the node answered operation %d in the place of %d", r.Index, k)
		case r.Status == http.StatusOK && r.Error == nil:
			receipt, err := record.ParseReceipt(r.Receipt)
			if err != nil {
				return nil, unsoundReceipt(err)
			}
			if b.rows[i].auto && step.Ledger != nil && receipt.Seq <= step.Ledger.Seq {
				again = append(again, i)
			}
			b.advanceMark(receipt)
		case r.Error == nil:
			return nil, cli.Fail(cli.ExitBad, "node_inconsistent", "", "the node refused operation %d and does not say why", k)
		case r.Error.Code == codeNonce && b.rows[i].auto:
			again = append(again, i)
		default:
			end.Refused = append(end.Refused, newRefusedRow(i, b.rows[i].line, r.Error))
		}
	}
	end.Again = toSpans(again)
	return end, nil
}

// refusedWhole takes the refusal of an atomic request that names one of its rows as the refusal of that row. The other rows
// are sent again, unless the whole file is atomic.
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
	if b.mode != modeAtomic && !isLedgerRefusal(p.Reason) {
		return nil, false
	}
	if b.mode != modeAtomic {
		end.Refused = []refusedRow{newRefusedRow(at, b.rows[at].line, &walletapi.BatchError{Code: p.Code, Reason: p.Reason})}
		end.Again = toSpans(slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return i == at }))
		return end, true
	}
	for _, i := range rows {
		e := &walletapi.BatchError{Code: "ABORTED", Reason: "aborted"}
		if i == at {
			e = &walletapi.BatchError{Code: p.Code, Reason: p.Reason}
		}
		end.Refused = append(end.Refused, newRefusedRow(i, b.rows[i].line, e))
	}
	return end, true
}

// isLedgerRefusal reports whether the ledger's rules refused a row: the other rows of its file may still be accepted.
func isLedgerRefusal(reason string) bool {
	for r := record.Accepted; r.Known(); r++ {
		if r.Refused() && r.String() == reason {
			return true
		}
	}
	return false
}

// opOf finds the row that the refusal of a request names.
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

// batchFailure advises to run the same command again, which goes on where this one ended.
func batchFailure(err error, key string, lost bool) error {
	f := &cli.Failure{Err: err, Details: map[string]any{"idempotency_key": key}, Unsettled: lost}
	if lost || client.Retryable(err) {
		f.Next = runAgain
	}
	return f
}

// ledgerMark is a place in the ledger of a node. A node that has another root there is another node, or has lost records.
type ledgerMark struct {
	Seq   uint64 `json:"seq"`
	Batch uint64 `json:"batch"`
	Root  string `json:"root"` // of the batch
}

// isForbidden reports whether the token lacks the scope for a request.
func isForbidden(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Status == http.StatusForbidden
}

// checkLedger notes where the ledger ends before the first request. In a later run it checks that the ledger is still the
// one in the state file. A token without the scope leaves it unknown.
func (b *batchRun) checkLedger(ctx context.Context) error {
	if b.mark.Batch == 0 {
		err := b.Repeat(ctx, "look at the ledger", func() error {
			h, err := b.node.LedgerHead(ctx)
			b.mark = ledgerMark{h.Seq, h.Batches, h.LastRoot}
			return err
		})
		if isForbidden(err) {
			return nil
		}
		return err
	}
	var list ledgerapi.Roots
	err := b.Repeat(ctx, "look at the ledger", func() (err error) {
		list, err = b.node.Roots(ctx, b.mark.Batch-1, 1)
		return err
	})
	if isForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(list.Roots) == 0 || list.Roots[0].Batch != b.mark.Batch || list.Roots[0].Root != b.mark.Root {
		return cli.Fail(cli.ExitFailed, "other_ledger",
			"to pay it on this node name another file with --state; a restored one lacks what `ronbox wallet history` does not show",
			"the state tells of another ledger than this node's: it is another node's, or that of this one before it was restored")
	}
	return nil
}

// currentMark is the mark for a step, nil where it is not known.
func (b *batchRun) currentMark() *ledgerMark {
	if b.mark == (ledgerMark{}) {
		return nil
	}
	m := b.mark
	return &m
}

// advanceMark moves the mark to a newer record.
func (b *batchRun) advanceMark(r record.Receipt) {
	if r.Seq > b.mark.Seq {
		b.mark = ledgerMark{r.Seq, r.Batch, r.Root.String()}
	}
}

// findDone finds the rows that were done among those that end calls refused or pending, for a request that was sent before
// without an answer. The node may have forgotten its key since, or the token may be another: a refusal of the second
// sending then says nothing about the first. All that was done after the step was written stands in the statements.
func (b *batchRun) findDone(ctx context.Context, step, end *batchStep) error {
	rows, ops, err := b.ops(step)
	if err != nil {
		return err
	}
	again, err := expandSpans(end.Again, len(b.rows))
	if err != nil {
		return err
	}
	open := setOf(again)
	for _, r := range end.Refused {
		open[r.Row] = true
	}
	sought := map[statement]map[int]walletapi.BatchOp{}
	for k, i := range rows {
		if !open[i] {
			continue
		}
		at, err := statementFor(ctx, &b.Repeater, b.node, &ops[k])
		if err != nil {
			return err
		}
		if at.account == "" {
			continue
		}
		if sought[at] == nil {
			sought[at] = map[int]walletapi.BatchOp{}
		}
		sought[at][i] = ops[k]
	}
	done := map[int]bool{}
	for at, ops := range sought {
		err := walkStatement(ctx, &b.Repeater, b.node, at, func(p posting) bool {
			if step.Ledger != nil && p.Seq <= step.Ledger.Seq { // counted before the step was made
				return false
			}
			for i, op := range ops {
				if b.isOurs(&op, &p) {
					done[i] = true
					delete(ops, i)
					b.advanceMark(p.Receipt)
					break
				}
			}
			return len(ops) > 0
		})
		if err != nil && !isAssetUnknown(err) {
			return err
		}
	}
	end.Again = toSpans(slices.DeleteFunc(again, func(i int) bool { return done[i] }))
	end.Refused = slices.DeleteFunc(end.Refused, func(r refusedRow) bool { return done[r.Row] })
	return nil
}

// isOurs reports whether a posting is of an operation of this run: another run, or a person, may have paid in the same
// terms with the same nonce. It does not matter which run ended a hold: it ends once.
func (b *batchRun) isOurs(op *walletapi.BatchOp, p *posting) bool {
	return (op.Hold != "" || strings.HasPrefix(p.Idem, b.owner)) && matches(op, p)
}

// resolveOpen records the result of a request of an earlier run whose payers have spent since, if the statements may be
// read: when it is sent again, a row that was done under another nonce could find its nonce free. If no payer has spent,
// none of it was done, and an atomic request falls with its first row.
func (b *batchRun) resolveOpen(ctx context.Context, open *batchStep) (*batchStep, error) {
	if open == nil || b.mode == modeAtomic {
		return open, nil
	}
	spent := false
	for payer, first := range open.Nonces {
		delete(b.next, payer)
		next, err := b.nonce(ctx, payer)
		if isForbidden(err) {
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
	if err := b.findDone(ctx, open, end); isForbidden(err) {
		return open, nil
	} else if err != nil {
		return open, err
	}
	end.Ledger = b.currentMark()
	if err := b.state.write(end); err != nil {
		return open, err
	}
	return nil, b.recordResult(open, end)
}
