package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

const (
	maxChunkOps   = 4096            // of one request
	maxChunkBytes = 960 << 10       // of its body; the node takes 1 MiB
	lookAhead     = 4 * maxChunkOps // rows that are looked at for one request, past those that have to wait
	maxStalls     = 10              // requests in a row that settle nothing, because another spends from the same accounts
)

// batchNode is what a batch needs of a node; *client.Client is one.
type batchNode interface {
	statements
	LedgerHead(ctx context.Context) (wire.LedgerHead, error)
	Roots(ctx context.Context, since uint64, limit int) (wire.Roots, error)
	Account(ctx context.Context, account string) (wire.Account, error)
	Batch(ctx context.Context, key string, b wire.Batch) (client.BatchPosted, error)
}

// batchRun sends the rows of a file in requests and keeps what became of them. It belongs to one goroutine.
//
// Rows of one payer stay in order and take consecutive nonces. A request with several of them is done whole or not at
// all: a nonce that is taken refuses every row of it, also those whose nonces are still free, for whoever took it may
// have done one of these very rows, as a second run of the name does. What is left is looked for then, under nonces that
// were looked up before.
//
// Where a row of such a request is refused the others are sent again, at first one row of each payer, where every row is
// judged by itself, and twice as many of a payer each time that its rows are accepted. So a payer without funds costs a
// request a row and not a chunk.
type batchRun struct {
	repeater
	node  batchNode
	state *batchState
	owner string // begins the key of every request of a run of this name
	mode  string
	rows  []batchRow
	most  int // rows of a request
	now   func() time.Time

	done   func(settled, total int)
	looked func(entries int64)
	notice func(format string, args ...any) // what a person must not miss

	no      int               // of the next request
	pending []int             // rows not settled, in order
	next    map[string]uint64 // the next nonce of a payer, where it is known
	width   map[string]int    // rows of a payer that go into a request, after a refusal; 0 is no bound
	mark    ledgerMark        // the newest record that is known
	stalls  int
	entries int64 // of statements, looked at
	taken   bool  // another took a nonce that was known
	known   []int // rows of a request that the node knows with other nonces: done at least in part, or under way
	out     batchDoc
}

// batchDoc is what wallet batch prints.
type batchDoc struct {
	Rows     int            `json:"rows"`
	Accepted int            `json:"accepted"`
	Refused  []batchRefusal `json:"refused"`
	Requests int            `json:"requests"`
	Before   []span         `json:"done_before"` // lines of those accepted that were done by a run of which no state told
	Resumed  bool           `json:"resumed"`     // an earlier run had begun
	State    string         `json:"state,omitzero"`
}

// begin takes all rows as not done, and then what steps tell of an earlier run. It gives the request of it that was
// about to be sent, if what became of that is not known.
func (b *batchRun) begin(steps []batchStep) (*batchStep, error) {
	b.out = batchDoc{Rows: len(b.rows), Refused: []batchRefusal{}, Before: []span{}, Resumed: len(steps) > 0}
	b.next, b.width = map[string]uint64{}, map[string]int{}
	b.pending = make([]int, len(b.rows))
	for i := range b.pending {
		b.pending[i] = i
	}
	var open *batchStep
	for i := range steps {
		s := &steps[i]
		if s.Ledger != nil && s.Ledger.Seq >= b.mark.Seq {
			b.mark = *s.Ledger
		}
		switch {
		case s.Plan != nil:
		case s.Reopened != nil && open == nil:
			if err := b.reopen(s.Reopened); err != nil {
				return nil, err
			}
		case s.Before != nil && open == nil:
			if err := b.doneBefore(s.Before); err != nil {
				return nil, err
			}
		case s.No != b.no || s.Settled == (open == nil):
			return nil, fmt.Errorf("step %d: %w", i, errNoState)
		case !s.Settled:
			open = s
		default:
			if err := b.settle(open, s); err != nil {
				return nil, err
			}
			open = nil
		}
	}
	return open, nil
}

// retryRefused takes the rows that were refused as not done.
func (b *batchRun) retryRefused() error {
	rows := refusedRows(b.out.Refused)
	if len(rows) == 0 {
		return nil
	}
	step := batchStep{No: b.no, Reopened: spans(rows)}
	if err := b.state.write(step); err != nil {
		return err
	}
	return b.reopen(step.Reopened)
}

// refusedRows are the rows of refusals, ascending.
func refusedRows(all []batchRefusal) (rows []int) {
	for i := range all {
		rows = append(rows, all[i].Row)
	}
	slices.Sort(rows)
	return rows
}

func (b *batchRun) reopen(s []span) error {
	rows, err := rowsOf(s, len(b.rows))
	if err == nil && !within(rows, refusedRows(b.out.Refused)) {
		err = fmt.Errorf("%w: rows are tried again that were not refused", errNoState)
	}
	if err != nil {
		return err
	}
	again := set(rows)
	b.out.Refused = slices.DeleteFunc(b.out.Refused, func(r batchRefusal) bool { return again[r.Row] })
	b.pending = append(b.pending, rows...)
	slices.Sort(b.pending)
	b.next = map[string]uint64{} // others may have spent meanwhile
	return nil
}

// run sends until every row is settled; open is a request that an earlier run may have sent.
func (b *batchRun) run(ctx context.Context, open *batchStep) error {
	b.known = nil // the node says it again where it is still so: it says so of a request under way too, that may be refused then
	if err := b.locate(ctx); err != nil {
		return err
	}
	open, err := b.overtaken(ctx, open)
	if err != nil {
		return err
	}
	if open != nil {
		if err := b.do(ctx, open, true); err != nil {
			return err
		}
	}
	if len(b.pending) > 0 {
		b.next = map[string]uint64{} // others may have spent since the state was written
		if err := b.lookBack(ctx); err != nil {
			return err
		}
	}
	for len(b.pending) > 0 {
		step, err := b.take(ctx)
		if err == nil {
			err = b.state.write(step)
		}
		if err == nil {
			err = b.do(ctx, step, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// do sends a request and books what became of it; with sent an earlier run may have made it before.
func (b *batchRun) do(ctx context.Context, step *batchStep, sent bool) error {
	before := len(b.pending)
	b.done(len(b.rows)-before, len(b.rows))
	end, err := b.send(ctx, step, sent)
	if err != nil {
		return err
	}
	if err := b.state.write(end); err != nil {
		return err
	}
	if err := b.settle(step, end); err != nil {
		return err
	}
	if err := b.others(ctx); err != nil {
		return err
	}
	if b.stalls++; len(b.pending) < before {
		b.stalls = 0
	}
	if b.stalls == maxStalls {
		return failed(exitBusy, "nonce_taken", "find out who else spends from these accounts, then run the same command again",
			"%d requests in a row came too late: another takes the nonces of the payers", maxStalls)
	}
	return nil
}

// settle books what became of a step, live or as the state tells it.
func (b *batchRun) settle(step, end *batchStep) error {
	rows, ops, err := b.ops(step)
	if err != nil {
		return err
	}
	again, err := rowsOf(end.Again, len(b.rows))
	ended := slices.Concat(again, refusedRows(end.Refused)) // once each
	known, wrong := rowsOf(end.Known, len(b.rows))
	if err = errors.Join(err, wrong); err == nil && (!within(known, again) || !within(rows, b.pending) || !within(ended, rows) || len(set(ended)) != len(ended)) {
		err = fmt.Errorf("%w: request %d is of rows that do not wait, or its end tells of others", errNoState, step.No)
	}
	if err != nil {
		return err
	}
	open, refused := set(again), set(refusedRows(end.Refused))
	for payer, n := range step.Nonces {
		b.next[payer] = n
	}
	gone, hurt := map[int]bool{}, map[string]bool{}
	fell := b.modeOf(rows) == modeAtomic && len(refused) > 0 // with that row, and no nonce was taken
	for k, i := range rows {
		r := &b.rows[i]
		switch {
		case open[i]:
			if r.auto && !fell && ops[k].Nonce == b.next[r.payer] && !hurt[r.payer] {
				delete(b.next, r.payer) // another has taken it: look it up again
				b.taken = true
			}
			hurt[r.payer] = true
			continue
		case refused[i]:
			hurt[r.payer] = true
		default:
			b.out.Accepted++
			if r.auto {
				b.next[r.payer] = ops[k].Nonce + 1
			}
		}
		gone[i] = true
	}
	b.adapt(rows, hurt)
	b.pending = without(b.pending, gone)
	b.known = append(b.known, known...)
	b.out.Refused = append(b.out.Refused, end.Refused...)
	b.out.Requests++
	b.no++
	return nil
}

// adapt narrows the payers that met a refusal and widens those that did not.
func (b *batchRun) adapt(rows []int, hurt map[string]bool) {
	seen := map[string]bool{}
	for _, i := range rows {
		payer := b.rows[i].payer
		if payer == "" || seen[payer] || b.mode == modeAtomic {
			continue
		}
		seen[payer] = true
		switch w := b.width[payer]; {
		case hurt[payer]:
			b.width[payer] = 1
		case 2*w >= b.most:
			delete(b.width, payer)
		case w > 0:
			b.width[payer] = 2 * w
		}
	}
}

func set(rows []int) map[int]bool {
	out := make(map[int]bool, len(rows))
	for _, r := range rows {
		out[r] = true
	}
	return out
}

// without takes the rows in gone out of rows, all of which stand near its front: what is behind them is not touched.
func without(rows []int, gone map[int]bool) []int {
	var kept []int
	at := 0
	for ; len(gone) > 0; at++ {
		if gone[rows[at]] {
			delete(gone, rows[at])
		} else {
			kept = append(kept, rows[at])
		}
	}
	return rows[at-len(kept):][:copy(rows[at-len(kept):], kept)+len(rows)-at]
}
