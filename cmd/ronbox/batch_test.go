package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// fakeBank is a node that knows transfers: strict nonces, balances, answers kept under keys. It loses requests and
// answers, and dies, as drawn.
type fakeBank struct {
	name     string
	balance  map[string]int
	nonces   map[string]uint64 // last
	answers  map[string]string // by key: the request
	results  map[string]wire.BatchAnswer
	memos    []string // of what was done, in order
	log      []wire.HistoryEntry
	roots    []string // of batches, each of which is a record here
	asked    int      // statements that were read
	draw     func(n int) int
	thief    string // an account that somebody else spends from now and then
	requests int
}

var errKilled = errors.New("killed")

func newFakeBank(draw func(int) int) *fakeBank {
	return &fakeBank{balance: map[string]int{}, nonces: map[string]uint64{}, answers: map[string]string{}, results: map[string]wire.BatchAnswer{}, draw: draw}
}

// History gives the whole log for any account, a page of 3 at a time, the newest first.
func (f *fakeBank) History(_ context.Context, q client.HistoryQuery) (out wire.History, _ error) {
	f.asked++
	at := len(f.log)
	if q.Cursor != "" {
		_, _ = fmt.Sscan(q.Cursor, &at)
	}
	for at--; at >= 0 && len(out.Entries) < 3; at-- {
		out.Entries = append(out.Entries, f.log[at])
	}
	if at >= 0 {
		out.Next = fmt.Sprint(at + 1)
	}
	return out, nil
}

func (f *fakeBank) Tx(_ context.Context, id string) ([]byte, error) {
	return nil, &wire.Problem{Status: http.StatusNotFound}
}

func (f *fakeBank) LedgerHead(context.Context) (h wire.LedgerHead, _ error) {
	n := len(f.roots)
	h.Batches, h.Seq, h.LastRoot = uint64(n), uint64(n), b3.Digest{}.String()
	if n > 0 {
		h.LastRoot = f.roots[n-1]
	}
	return h, nil
}

func (f *fakeBank) Roots(_ context.Context, since uint64, _ int) (out wire.Roots, _ error) {
	if since < uint64(len(f.roots)) {
		out.Roots = []wire.Root{{Batch: since + 1, Root: f.roots[since]}}
	}
	return out, nil
}

func (f *fakeBank) Account(_ context.Context, account string) (wire.Account, error) {
	return wire.Account{NextNonce: f.nonces[account] + 1}, nil
}

func (f *fakeBank) Batch(_ context.Context, key string, b wire.Batch) (client.BatchPosted, error) {
	f.requests++
	if f.thief != "" && f.draw(4) == 0 {
		f.nonces[f.thief]++
	}
	switch f.draw(8) {
	case 0:
		return client.BatchPosted{}, fmt.Errorf("lost: %w", client.ErrUnknown)
	case 1:
		_, _ = f.apply(key, b)
		return client.BatchPosted{}, fmt.Errorf("lost: %w", client.ErrUnknown)
	case 2:
		_, _ = f.apply(key, b)
		return client.BatchPosted{}, errKilled
	case 3:
		return client.BatchPosted{}, errKilled
	}
	return f.apply(key, b)
}

func (f *fakeBank) apply(key string, b wire.Batch) (client.BatchPosted, error) {
	raw, _ := json.Marshal(b, json.Deterministic(true))
	if was, known := f.answers[key]; known {
		if was != string(raw) {
			return client.BatchPosted{}, &wire.Problem{Status: 422, Code: "IDEMPOTENCY_CONFLICT", Reason: "idem_conflict"}
		}
		return client.BatchPosted{Answer: f.results[key], Replayed: true}, nil
	}
	if b.Mode == modeAtomic {
		if p := f.atomic(b); p != nil {
			return client.BatchPosted{}, p
		}
	}
	var answer wire.BatchAnswer
	accepted := false
	for i, op := range b.Ops {
		code := f.refuse(op)
		r := wire.BatchResult{Index: i, Status: http.StatusOK}
		if code != "" {
			r.Status, r.Error = http.StatusConflict, &wire.BatchError{Code: code, Reason: strings.ToLower(code)}
		} else {
			r.Receipt = f.post(op)
			accepted = true
		}
		answer.Results = append(answer.Results, r)
	}
	if accepted {
		f.answers[key], f.results[key] = string(raw), answer
	}
	return client.BatchPosted{Answer: answer}, nil
}

func (f *fakeBank) refuse(op wire.BatchOp) string {
	var n int
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	switch {
	case op.Nonce != f.nonces[op.From]+1:
		return codeNonce
	case f.balance[op.From] < n:
		return "INSUFFICIENT_FUNDS"
	}
	return ""
}

func (f *fakeBank) post(op wire.BatchOp) (receipt []byte) {
	var n int
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	f.balance[op.From] -= n
	f.balance[op.To] += n
	f.nonces[op.From]++
	f.memos = append(f.memos, op.Memo)
	seq := uint64(len(f.log) + 1)
	r := record.Receipt{
		TxID: record.NewTxID(int64(seq)*1e6, seq, 0), Op: record.OpTransfer, From: op.From, To: op.To, Asset: op.Asset, Amount: engines.AmountOf(0, uint64(n)),
		Nonce: op.Nonce, At: int64(seq) * 1e6, Seq: seq, Batch: seq, Root: b3.Sum([]byte(fmt.Sprint(f.name, seq))), Version: 1,
	}
	f.roots = append(f.roots, r.Root.String())
	f.log = append(f.log, wire.HistoryEntry{Receipt: r.AppendJSON(nil), Memo: op.Memo})
	return r.AppendJSON(nil)
}

// atomic refuses all when one is refused.
func (f *fakeBank) atomic(b wire.Batch) *wire.Problem {
	try := newFakeBank(nil)
	for k, v := range f.balance {
		try.balance[k] = v
	}
	for k, v := range f.nonces {
		try.nonces[k] = v
	}
	for i, op := range b.Ops {
		if code := try.refuse(op); code != "" {
			return &wire.Problem{Status: http.StatusConflict, Code: code, Reason: strings.ToLower(code), Details: map[string]any{"index": float64(i)}}
		}
		try.post(op)
	}
	return nil
}

// runFake runs a batch once, as the verb does.
func runFake(t *rapid.T, f *fakeBank, rows []batchRow, state, mode string, most int) (*batchRun, error) {
	b := &batchRun{repeater: impatient(), node: f, rows: rows, mode: mode, most: most, done: func(int, int) {}}
	var err error
	if b.input, err = inputDigest(rows); err != nil {
		t.Fatal(err)
	}
	s, steps, err := openBatchState(state, batchPlan{Version: 1, Input: b.input.String(), Mode: mode, Rows: len(rows)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.sync = func() error { return nil } // what a crash cuts off is drawn
	b.state = s
	open, err := b.begin(steps)
	if err != nil {
		t.Fatal(err)
	}
	return b, b.run(t.Context(), open)
}

// Through lost answers, kills, state files cut short and somebody else who spends, every row is done once or refused
// for good, in the order of its payer, and a finished file does nothing when run again.
func TestBatchDoesEachRowOnce(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		state := filepath.Join(dir, fmt.Sprint(n))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) // one draw a fault would make shrinking endless
		f := newFakeBank(rng.IntN)
		rows := drawRows(t, f)
		if rapid.Bool().Draw(t, "thief") {
			f.thief = "a"
		}
		most := rapid.IntRange(1, 5).Draw(t, "most")
		var b *batchRun
		for run := 0; ; run++ {
			var err error
			b, err = runFake(t, f, rows, state, modeIndependent, most)
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) && !errors.Is(err, client.ErrUnknown) && judge(err).reason != "nonce_taken" {
				t.Fatalf("run %d: %v", run, err)
			}
			if run > 2000 {
				t.Fatalf("no end: %d of %d left", len(b.pending), len(rows))
			}
			tear(t, state, rng)
			if rng.IntN(3) == 0 {
				clear(f.answers) // keys are kept for a day, and each principal has its own
			}
		}
		checkBatch(t, f, b, rows)
		before := f.requests
		again, err := runFake(t, f, rows, state, modeIndependent, most)
		if err != nil || f.requests != before || again.out.Accepted != b.out.Accepted || len(again.out.Refused) != len(b.out.Refused) {
			t.Fatalf("run again: %v, %d requests more, %+v after %+v", err, f.requests-before, again.out, b.out)
		}
	})
}

func drawRows(t *rapid.T, f *fakeBank) []batchRow {
	names := []string{"a", "b", "c"}
	for _, n := range names {
		f.balance[n] = rapid.IntRange(0, 20).Draw(t, "balance")
	}
	var rows []batchRow
	for i := range rapid.IntRange(1, 25).Draw(t, "rows") {
		from := rapid.IntRange(0, 2).Draw(t, "from")
		row, err := newBatchRow(i+2, wire.BatchOp{
			Op: wire.OpTransfer, From: names[from], To: names[(from+1)%3], Asset: "ron", Memo: fmt.Sprint(i),
			AmountMinor: fmt.Sprint(rapid.IntRange(1, 10).Draw(t, "amount")),
		})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// tear leaves half a line at the end of a state file now and then, as a crash may.
func tear(t *rapid.T, state string, rng *rand.Rand) {
	if rng.IntN(3) > 0 {
		return
	}
	f, err := os.OpenFile(state, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"no":9,"se`)
	_ = f.Close()
}

func checkBatch(t *rapid.T, f *fakeBank, b *batchRun, rows []batchRow) {
	done, refused := map[string]bool{}, map[int]bool{}
	last := map[string]int{}
	for _, m := range f.memos {
		var i int
		_, _ = fmt.Sscan(m, &i)
		if done[m] {
			t.Fatalf("row %s was done twice", m)
		}
		if p := rows[i].payer; i < last[p] && p != f.thief {
			t.Fatalf("row %d of %s was done after row %d", i, p, last[p])
		} else {
			last[p] = i
		}
		done[m] = true
	}
	for _, r := range b.out.Refused {
		if refused[r.Row] || done[fmt.Sprint(r.Row)] || r.Line != r.Row+2 {
			t.Fatalf("row %d, line %d, was told refused, and it was done or told before", r.Row, r.Line)
		}
		refused[r.Row] = true
	}
	if len(done)+len(refused) != len(rows) || b.out.Accepted != len(done) {
		t.Fatalf("%d rows: %d done, %d refused, told %d", len(rows), len(done), len(refused), b.out.Accepted)
	}
}

// What was refused is tried again when that is asked for, and nothing else.
func TestBatchRetriesWhatWasRefused(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 2
	var file strings.Builder
	file.WriteString("op,from,to,asset,amount_minor,memo\n")
	for i := range 6 {
		fmt.Fprintf(&file, "transfer,a,b,ron,1,%d\n", i)
	}
	path := filepath.Join(t.TempDir(), "pay.csv")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(retry bool) string {
		var out strings.Builder
		a := &app{stdout: &out, stderr: io.Discard, now: now, flags: flags{json: true}}
		if err := a.walletBatch(t.Context(), f, path, batchFlags{chunk: 4, retry: retry}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, tt := range []struct {
		funds int
		retry bool
		want  string
		done  int
	}{
		{0, false, `"accepted":2`, 2}, {1, false, `"accepted":2`, 2}, {0, true, `"accepted":3`, 3}, {9, true, `"accepted":6,"refused":[]`, 6}, {9, true, `"accepted":6`, 6},
	} {
		f.balance["a"] += tt.funds
		if out := run(tt.retry); !strings.Contains(out, tt.want) || len(f.memos) != tt.done {
			t.Errorf("with %d more, retry %t: %d done, %s", tt.funds, tt.retry, len(f.memos), out)
		}
	}
}

func TestBatchAtomic(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		f := newFakeBank(rng.IntN)
		rows := drawRows(t, f)
		var b *batchRun
		err := errKilled
		for err != nil {
			if rng.IntN(3) == 0 {
				clear(f.answers)
			}
			b, err = runFake(t, f, rows, filepath.Join(dir, fmt.Sprint(n)), modeAtomic, maxChunkOps)
			if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, client.ErrUnknown) {
				t.Fatal(err)
			}
		}
		all, none := len(f.memos) == len(rows) && len(b.out.Refused) == 0, len(f.memos) == 0 && len(b.out.Refused) == len(rows)
		if !all && !none {
			t.Fatalf("%d of %d done, %d refused", len(f.memos), len(rows), len(b.out.Refused))
		}
	})
}

// A state that another ledger made, or this one before it was restored, says nothing about what was done here.
func TestBatchOfAnotherLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pay.csv")
	if err := os.WriteFile(path, []byte("op,from,to,asset,amount_minor\ntransfer,a,b,ron,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(f *fakeBank) error {
		a := &app{stdout: io.Discard, stderr: io.Discard, now: now}
		return a.walletBatch(t.Context(), f, path, batchFlags{chunk: 4})
	}
	bank := func(name string) *fakeBank {
		f := newFakeBank(func(int) int { return 7 })
		f.name, f.balance["a"] = name, 9
		return f
	}
	here, there := bank("here"), bank("there")
	if err := run(here); err != nil {
		t.Fatal(err)
	}
	if err := run(here); err != nil || len(here.memos) != 1 {
		t.Errorf("again: %v, %d done", err, len(here.memos))
	}
	for range 2 { // the other one is empty, then has another history of the same length
		if err := run(there); err == nil || judge(err).reason != "other_ledger" {
			t.Errorf("on another node: %v", err)
		}
		there.post(wire.BatchOp{Op: wire.OpTransfer, From: "a", To: "b", Asset: "ron", AmountMinor: "1", Nonce: 1})
	}
}

// An account without funds costs a request a row, not a chunk a row, and holds up nobody.
func TestBatchOfABrokeAccount(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["rich"] = 1000
	var rows []batchRow
	for i := range 400 {
		op := wire.BatchOp{Op: wire.OpTransfer, From: "broke", To: "x", Asset: "ron", AmountMinor: "1", Memo: fmt.Sprint(i)}
		if i%2 == 0 {
			op.From = "rich"
		}
		row, err := newBatchRow(i+2, op)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	b := &batchRun{repeater: impatient(), node: f, rows: rows, mode: modeIndependent, most: 100, done: func(int, int) {}}
	if _, err := b.begin(nil); err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context(), nil); err != nil || b.out.Accepted != 200 || len(b.out.Refused) != 200 {
		t.Fatalf("%v, %+v", err, b.out)
	}
	if f.requests > 205 {
		t.Errorf("%d requests", f.requests)
	}
}
