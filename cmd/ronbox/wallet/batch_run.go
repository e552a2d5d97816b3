package wallet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

const (
	maxChunkOps   = 4096      // of one request
	maxChunkBytes = 960 << 10 // of its body; the node takes 1 MiB

	modeAtomic      = "atomic"
	modeIndependent = "independent"

	// a row done longer ago, of which no state tells, may be the payment of another month
	otherMonth = 24 * time.Hour
)

// batchNode is the part of walletapi.Client that a batch uses.
type batchNode interface {
	assetLister
	Batch(ctx context.Context, key string, b walletapi.Batch) (walletapi.BatchPosted, error)
	Tx(ctx context.Context, id string) ([]byte, error)
}

// batchRun sends the rows of a file in requests and records what became of them. Each row carries
// its reference, so the ledger does it once: a row that is sent again, by this run or another one,
// is answered with the receipt of then. It belongs to one goroutine.
type batchRun struct {
	cli.Repeater
	batchState
	node batchNode
	path string // of the state file, "" for none
	rows []batchRow
	most int // rows of a request
	now  func() time.Time
	done func(settled, total int)

	told     int       // rows that the state showed as done when the run began
	earlier  int       // those, and rows that are found to have been done before
	requests int       // answered
	oldest   time.Time // of the rows in Before
}

// send sends the pending rows until every one has a result. It keeps the state also if it fails.
func (b *batchRun) send(ctx context.Context) error {
	pending := b.pending()
	b.told = count(b.Done)
	b.earlier = b.told
	if err := b.checkLedger(ctx, pending); err != nil {
		return err
	}
	if len(pending) == 0 {
		return nil
	}
	var kept time.Time // at the start, so that a state that cannot be written is met before anything is sent
	for len(pending) > 0 {
		if b.now().Sub(kept) >= keepEvery {
			if err := b.keep(b.path); err != nil {
				return err
			}
			kept = b.now()
		}
		b.done(b.Rows-len(pending), b.Rows)
		rows := b.chunk(pending)
		if err := b.request(ctx, rows); err != nil {
			return errors.Join(err, b.keep(b.path))
		}
		pending = pending[len(rows):]
	}
	return b.keep(b.path)
}

// chunk returns the rows of the next request.
func (b *batchRun) chunk(pending []int) []int {
	n, bytes := 0, 0
	for n < min(len(pending), b.most) {
		if bytes += opBytes(&b.rows[pending[n]].op); bytes > maxChunkBytes && n > 0 {
			break
		}
		n++
	}
	return pending[:n]
}

// opBytes returns at least the size of an operation in a body.
func opBytes(op *walletapi.BatchOp) int {
	const fixed = 250 // names, quotes and numbers
	return fixed + len(op.From) + len(op.To) + len(op.Hold) + 6*(len(op.Memo)+len(op.Reference)) + len(op.ValidUntil) +
		len(op.AmountMinor)
}

// request sends rows, under a new key, until there is an answer, and takes the results.
func (b *batchRun) request(ctx context.Context, rows []int) error {
	ops := make([]walletapi.BatchOp, len(rows))
	for k, i := range rows {
		ops[k] = b.rows[i].op
	}
	key := "batch-" + ulid.MustNew(ulid.Now(), rand.Reader).String()
	var got walletapi.BatchPosted
	lost := false
	err := b.Repeat(ctx, fmt.Sprintf("request %d", b.requests), func() (err error) {
		got, err = b.node.Batch(ctx, key, walletapi.Batch{Mode: b.Mode, Ops: ops})
		lost = lost || outcomeUnknown(err)
		return err
	})
	if err == nil {
		b.requests++
		return b.take(rows, got.Answer.Results, key)
	}
	if p, at := problemAt(err, rows); at >= 0 {
		if b.Mode == modeAtomic {
			b.requests++
			b.refuseAll(rows, at, p)
			return nil
		}
		err = fmt.Errorf("line %d: %w", b.rows[at].line, err)
	}
	f := &cli.Failure{Err: err, Details: map[string]any{"idempotency_key": key}, Unsettled: lost}
	if lost || client.Retryable(err) {
		f.Next = runAgain
	}
	return f
}

const runAgain = "run the same command again: it continues where this one ended, and executes no row twice"

// problemAt returns the refusal of a request and the row that it names, -1 if it names none.
func problemAt(err error, rows []int) (*wire.Problem, int) {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return nil, -1
	}
	n, ok := p.Details["index"].(float64) // as JSON has it
	if !ok || n < 0 || int(n) >= len(rows) {
		return p, -1
	}
	return p, rows[int(n)]
}

// refuseAll takes the refusal of one row of an atomic file for the refusal of all.
func (b *batchRun) refuseAll(rows []int, at int, p *wire.Problem) {
	for _, i := range rows {
		if i == at {
			b.refuse(i, p.Reason)
		} else {
			b.refuse(i, record.Aborted.String())
		}
	}
}

func (b *batchRun) refuse(row int, reason string) {
	b.Refused = append(b.Refused, refusedRow{Row: row, Line: b.rows[row].line, Reason: reason})
}

// take takes the results of rows. A receipt under another key is that of an earlier run, or of one
// that is under way.
func (b *batchRun) take(rows []int, results []walletapi.BatchResult, key string) error {
	if len(results) != len(rows) {
		return inconsistent("the node answered %d operations of %d", len(results), len(rows))
	}
	var paid, before []int
	var made []time.Time // of the rows in before
	for k, i := range rows {
		switch r := &results[k]; {
		case r.Index != k || (r.Error == nil) != (r.Status == http.StatusOK):
			return inconsistent("the node's answer to operation %d has neither a receipt nor an error", k)
		case r.Error != nil:
			b.refuse(i, r.Error.Reason)
		default:
			receipt, err := record.ParseReceipt(r.Receipt)
			if err != nil {
				return unsoundReceipt(err)
			}
			b.Last = receipt.TxID.String()
			if receipt.Idem == key {
				paid = append(paid, i)
				continue
			}
			before, made = append(before, i), append(made, time.Unix(0, receipt.At))
		}
	}
	b.Done = addSpans(b.Done, paid...) // whatever the other rows are
	if err := b.checkMonth(before, made); err != nil {
		return err
	}
	for _, at := range made {
		if b.oldest.IsZero() || at.Before(b.oldest) {
			b.oldest = at
		}
	}
	b.Done, b.Before = addSpans(b.Done, before...), addSpans(b.Before, before...)
	b.earlier += len(before)
	return nil
}

func inconsistent(format string, args ...any) error {
	return cli.Fail(cli.ExitBad, "node_inconsistent", "", format, args...)
}

// checkMonth stops a run without a name if rows that are missing in the state file were done long
// ago: they may be the same payments of an earlier month.
func (b *batchRun) checkMonth(before []int, made []time.Time) error {
	first := -1 // the oldest such row
	for k, i := range before {
		if b.Run == "" && !b.rows[i].own && (first < 0 || made[k].Before(made[first])) {
			first = k
		}
	}
	if first < 0 || b.now().Sub(made[first]) < otherMonth {
		return nil
	}
	next := "if it is another payment with the same content, use --run NAME; " +
		"if it is the same payment, pass the state file of the earlier run with --state"
	paid := count(b.Done) - b.earlier
	if paid > 0 {
		next = fmt.Sprintf("%d lines of this file were paid just now: remove them before you use --run, "+
			"which pays every line; to pay only the new lines, pass the state file of the earlier run with "+
			"--state", paid)
	}
	f := cli.Fail(cli.ExitFailed, "done_before", next,
		"the operation of line %d was executed earlier, at %s, and is not in the state file: nothing more is sent",
		b.rows[before[first]].line, made[first].UTC().Format(time.RFC3339))
	f.Details = map[string]any{"operations": len(before), "paid_now": paid}
	return f
}

// checkLedger checks that the node has a row that the state shows as done: a restored node, or
// another one, may lack them all.
func (b *batchRun) checkLedger(ctx context.Context, pending []int) error {
	if b.Last == "" || len(pending) == 0 {
		return nil
	}
	err := b.Repeat(ctx, "read the ledger", func() error {
		_, err := b.node.Tx(ctx, b.Last)
		return err
	})
	p, ok := errors.AsType[*wire.Problem](err)
	switch {
	case ok && p.Status == http.StatusForbidden:
		return nil // the token may pay and not read
	case ok && p.Status == http.StatusNotFound:
		return cli.Fail(cli.ExitFailed, "other_ledger",
			"to pay it on this node, name another file with --state: rows that this node has executed are "+
				"not executed again",
			"the state file names transaction %s, which this node does not have, or does not show to the token: "+
				"the state file belongs to another node, or this node was restored", b.Last)
	}
	return err
}
