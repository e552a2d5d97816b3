package wallet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ronbox/cmd/ronbox/cli"
	ledgerapi "ronbox/httpapi/ledger"
	walletapi "ronbox/httpapi/wallet"
)

const (
	maxChunkOps   = 4096            // of one request
	maxChunkBytes = 960 << 10       // of its body; the node takes 1 MiB
	lookAhead     = 4 * maxChunkOps // rows that are looked at for one request, past those that have to wait
	maxStalls     = 10              // requests in a row that give no row a result, because another spends from the same accounts
)

// batchNode is the part of walletapi.Client that a batch uses.
type batchNode interface {
	statements
	LedgerHead(ctx context.Context) (ledgerapi.LedgerHead, error)
	Roots(ctx context.Context, since uint64, limit int) (ledgerapi.Roots, error)
	Account(ctx context.Context, account string) (walletapi.Account, error)
	Batch(ctx context.Context, key string, b walletapi.Batch) (walletapi.BatchPosted, error)
}

// batchRun sends the rows of a file in requests and records what became of them. It belongs to one goroutine.
//
// Rows of one payer stay in order and take consecutive nonces. A request that holds several of them is atomic: a nonce
// that is taken refuses every row, also those whose nonces are still free, because the other writer may have paid one of
// these very rows, as a second run of the same name does. The statements are searched then for rows that are done, under
// nonces that were looked up before the search.
//
// When one row of such a request is refused, the others are sent again: at first one row of each payer to a request, where
// each row stands alone, then twice as many of a payer each time that its rows are accepted. A payer without funds thus
// costs one request per row, not one per chunk.
type batchRun struct {
	cli.Repeater
	node  batchNode
	state *stateFile
	owner string // begins the key of every request of a run of this name
	mode  string
	rows  []batchRow
	most  int // rows of a request
	now   func() time.Time

	done   func(settled, total int)
	looked func(entries int64)
	notice func(format string, args ...any) // printed even with --quiet

	no      int               // number of the next request
	pending []int             // rows without a result, in order
	next    map[string]uint64 // next nonce of a payer, where it is known
	width   map[string]int    // most rows of a payer in one request, after a refusal; 0: no bound
	mark    ledgerMark        // newest record that is known
	stalls  int               // requests in a row that gave no row a result
	entries int64             // of statements, read
	taken   bool              // another writer took a nonce that was known
	early   int               // rows of the request in hand that an earlier run has done
	known   []int             // rows of a request that the node knows with other nonces: done at least in part, or under way
	out     batchDoc
}

// batchDoc is the output of wallet batch.
type batchDoc struct {
	Rows       int          `json:"rows"`
	Accepted   int          `json:"accepted"`
	Refused    []refusedRow `json:"refused"`
	Requests   int          `json:"requests"`
	PaidNow    int          `json:"paid_now"`    // of those accepted, by this run
	PaidBefore int          `json:"paid_before"` // of those accepted, by earlier runs
	Before     []span       `json:"done_before"` // lines of those accepted that were done by a run of which no state told
	Resumed    bool         `json:"resumed"`     // an earlier run had begun
	State      string       `json:"state,omitzero"`
}

// begin takes all rows as pending and then replays the steps of an earlier run. It returns the request that this run was
// about to send, if its result is not known.
func (b *batchRun) begin(steps []batchStep) (*batchStep, error) {
	b.out = batchDoc{Rows: len(b.rows), Refused: []refusedRow{}, Before: []span{}, Resumed: len(steps) > 0}
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
			if err := b.recordResult(open, s); err != nil {
				return nil, err
			}
			open = nil
		}
	}
	b.out.PaidBefore = b.out.Accepted
	return open, nil
}

// retryRefused makes the refused rows pending again.
func (b *batchRun) retryRefused() error {
	rows := refusedRows(b.out.Refused)
	if len(rows) == 0 {
		return nil
	}
	step := batchStep{No: b.no, Reopened: toSpans(rows)}
	if err := b.state.write(step); err != nil {
		return err
	}
	return b.reopen(step.Reopened)
}

// refusedRows are the rows of refusals, ascending.
func refusedRows(all []refusedRow) (rows []int) {
	for i := range all {
		rows = append(rows, all[i].Row)
	}
	slices.Sort(rows)
	return rows
}

func (b *batchRun) reopen(s []span) error {
	rows, err := expandSpans(s, len(b.rows))
	if err == nil && !isSubset(rows, refusedRows(b.out.Refused)) {
		err = fmt.Errorf("%w: rows are tried again that were not refused", errNoState)
	}
	if err != nil {
		return err
	}
	again := setOf(rows)
	b.out.Refused = slices.DeleteFunc(b.out.Refused, func(r refusedRow) bool { return again[r.Row] })
	b.pending = append(b.pending, rows...)
	slices.Sort(b.pending)
	b.next = map[string]uint64{} // others may have spent meanwhile
	return nil
}

// run sends until every row is settled; open is a request that an earlier run may have sent.
func (b *batchRun) run(ctx context.Context, open *batchStep) error {
	b.known = nil // the node reports it again where it still holds; a request that was under way may have been refused since
	if err := b.checkLedger(ctx); err != nil {
		return err
	}
	open, err := b.resolveOpen(ctx, open)
	if err != nil {
		return err
	}
	b.out.PaidBefore = b.out.Accepted
	if open != nil {
		if err := b.sendAndRecord(ctx, open, true); err != nil {
			return err
		}
	}
	if len(b.pending) > 0 {
		b.next = map[string]uint64{} // others may have spent since the state was written
		if err := b.findDoneBefore(ctx); err != nil {
			return err
		}
	}
	for len(b.pending) > 0 {
		step, err := b.nextRequest(ctx)
		if err == nil {
			err = b.state.write(step)
		}
		if err == nil {
			err = b.sendAndRecord(ctx, step, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAndRecord sends a request and records its result; with sent an earlier run may have sent it before.
func (b *batchRun) sendAndRecord(ctx context.Context, step *batchStep, sent bool) error {
	before := len(b.pending)
	b.done(len(b.rows)-before, len(b.rows))
	end, err := b.send(ctx, step, sent)
	if err != nil {
		return err
	}
	if err := b.state.write(end); err != nil {
		return err
	}
	if err := b.recordResult(step, end); err != nil {
		return err
	}
	b.out.PaidBefore += b.early
	if err := b.checkOtherRuns(ctx); err != nil {
		return err
	}
	if b.stalls++; len(b.pending) < before {
		b.stalls = 0
	}
	if b.stalls == maxStalls {
		return cli.Fail(cli.ExitBusy, "nonce_taken", "find out who else spends from these accounts, then run the same command again",
			"%d requests in a row came too late: another takes the nonces of the payers", maxStalls)
	}
	return nil
}

// recordResult takes the result of a request into the run, live or from the state file.
func (b *batchRun) recordResult(step, end *batchStep) error {
	rows, ops, err := b.ops(step)
	if err != nil {
		return err
	}
	again, err := expandSpans(end.Again, len(b.rows))
	ended := slices.Concat(again, refusedRows(end.Refused)) // once each
	known, wrong := expandSpans(end.Known, len(b.rows))
	if err = errors.Join(err, wrong); err == nil && (!isSubset(known, again) || !isSubset(rows, b.pending) || !isSubset(ended, rows) || len(setOf(ended)) != len(ended)) {
		err = fmt.Errorf("%w: request %d is of rows that do not wait, or its end tells of others", errNoState, step.No)
	}
	if err != nil {
		return err
	}
	open, refused := setOf(again), setOf(refusedRows(end.Refused))
	maps.Copy(b.next, step.Nonces)
	gone, stopped := map[int]bool{}, map[string]bool{}
	fell := b.modeOf(rows) == modeAtomic && len(refused) > 0 // with that row, and no nonce was taken
	for k, i := range rows {
		r := &b.rows[i]
		switch {
		case open[i]:
			if r.auto && !fell && ops[k].Nonce == b.next[r.payer] && !stopped[r.payer] {
				delete(b.next, r.payer) // another has taken it: look it up again
				b.taken = true
			}
			stopped[r.payer] = true
			continue
		case refused[i]:
			stopped[r.payer] = true
		default:
			b.out.Accepted++
			if r.auto {
				b.next[r.payer] = ops[k].Nonce + 1
			}
		}
		gone[i] = true
	}
	b.adaptWidths(rows, stopped)
	b.pending = removeRows(b.pending, gone)
	b.known = append(b.known, known...)
	b.out.Refused = append(b.out.Refused, end.Refused...)
	b.out.Requests++
	b.no++
	return nil
}

// adaptWidths narrows the payers that met a refusal and widens those that did not.
func (b *batchRun) adaptWidths(rows []int, stopped map[string]bool) {
	seen := map[string]bool{}
	for _, i := range rows {
		payer := b.rows[i].payer
		if payer == "" || seen[payer] || b.mode == modeAtomic {
			continue
		}
		seen[payer] = true
		switch w := b.width[payer]; {
		case stopped[payer]:
			b.width[payer] = 1
		case 2*w >= b.most:
			delete(b.width, payer)
		case w > 0:
			b.width[payer] = 2 * w
		}
	}
}

func setOf(rows []int) map[int]bool {
	out := make(map[int]bool, len(rows))
	for _, r := range rows {
		out[r] = true
	}
	return out
}

// removeRows takes the rows in gone out of rows. They stand near its front: the rest is not moved.
func removeRows(rows []int, gone map[int]bool) []int {
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

// nextRequest chooses the rows of the next request and the nonces that they begin with.
func (b *batchRun) nextRequest(ctx context.Context) (*batchStep, error) {
	step := &batchStep{No: b.no, Nonces: map[string]uint64{}, Ledger: b.currentMark()}
	var rows []int
	bytes, used := 0, map[string]int{}
	singly := b.oneAtATime(b.pending[0])
	for _, i := range b.pending[:min(len(b.pending), lookAhead)] {
		r := &b.rows[i]
		if w := b.width[r.payer]; r.payer != "" && (singly && used[r.payer] > 0 || !singly && b.oneAtATime(i) || w > 0 && used[r.payer] == w) {
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
	step.Rows = toSpans(rows)
	return step, nil
}

// oneAtATime reports whether a row goes only into requests that hold one row of each payer, its payer's last row having been refused.
func (b *batchRun) oneAtATime(i int) bool { return b.width[b.rows[i].payer] == 1 }

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
func opBytes(op *walletapi.BatchOp) int {
	const fixed = 220
	return fixed + len(op.From) + len(op.To) + len(op.Hold) + 6*len(op.Memo) + len(op.ValidUntil) + len(op.AmountMinor)
}

func (b *batchRun) nonce(ctx context.Context, payer string) (uint64, error) {
	if n, known := b.next[payer]; known {
		return n, nil
	}
	err := b.Repeat(ctx, "look up a nonce", func() error {
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
func (b *batchRun) ops(step *batchStep) (rows []int, ops []walletapi.BatchOp, err error) {
	rows, err = expandSpans(step.Rows, len(b.rows))
	next := map[string]uint64{}
	maps.Copy(next, step.Nonces)
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
