package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// fakeBank is a node that knows transfers: strict nonces, balances, answers kept under keys. It loses requests and
// answers, and dies, as drawn.
type fakeBank struct {
	balance  map[string]int
	nonces   map[string]uint64 // last
	answers  map[string]string // by key: the request
	results  map[string]wire.BatchAnswer
	memos    []string // of what was done, in order
	draw     func(n int) int
	thief    string // an account that somebody else spends from now and then
	requests int
}

var errKilled = errors.New("killed")

func newFakeBank(draw func(int) int) *fakeBank {
	return &fakeBank{balance: map[string]int{}, nonces: map[string]uint64{}, answers: map[string]string{}, results: map[string]wire.BatchAnswer{}, draw: draw}
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
			f.post(op)
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

func (f *fakeBank) post(op wire.BatchOp) {
	var n int
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	f.balance[op.From] -= n
	f.balance[op.To] += n
	f.nonces[op.From]++
	f.memos = append(f.memos, op.Memo)
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

func TestBatchFiles(t *testing.T) {
	const head = "op,from,to,asset,amount_minor\n"
	for _, tt := range []struct{ doc, in, want string }{
		{"csv", head + "transfer,alice,bob,ron,5\nburn,bob,,ron,1\n", ""},
		{"csv with quotes and more columns", "op,to,asset,amount_minor,memo\nissue,alice,ron,5,\"a, b\"\n", ""},
		{"ndjson", `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n\n" + `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD"}`, ""},
		{"nothing", "", "f: no operation"},
		{"a header alone", head, "f: no operation"},
		{"an unknown column", "op,from,too\n", `f:1: the first line names the columns: "too" is none of op,from,`},
		{"a column twice", "op,from,from\n", `f:1: the first line names the columns: "from" stands twice`},
		{"no op", "from,to\na,b\n", "f:1: the first line names the columns: op is missing"},
		{"too few fields", head + "transfer,alice\n", "f:2: 2 fields where the header has 5"},
		{"a quote left open", head + "transfer,\"alice\n", "f:2: "},
		{"an unknown op", head + "give,alice,bob,ron,5\n", `f:2: op: "give": must be issue, transfer,`},
		{"a missing member", head + "transfer,alice,,ron,5\n", "f:2: to: missing"},
		{"a member too many", head + "burn,alice,bob,ron,5\n", "f:2: to: this op has no such member"},
		{"an amount with a point", head + "transfer,alice,bob,ron,5.00\n", "f:2: amount_minor: "},
		{"an amount of nothing", head + "transfer,alice,bob,ron,0\n", "f:2: amount_minor: "},
		{"a sign", head + "transfer,alice,bob,ron,-5\n", "f:2: amount_minor: "},
		{"an account with a space", head + "transfer,al ice,bob,ron,5\n", "f:2: from: "},
		{"an asset in capitals", head + "transfer,alice,bob,RON,5\n", "f:2: asset: "},
		{"to oneself", head + "transfer,alice,alice,ron,5\n", "f:2: to: is from"},
		{"a nonce of 0", "op,from,to,asset,amount_minor,nonce\ntransfer,alice,bob,ron,5,0\n", "f:2: nonce: "},
		{"nonces here and there", "op,from,to,asset,amount_minor,nonce\ntransfer,alice,bob,ron,5,4\ntransfer,alice,bob,ron,5,\n", "f:3: nonce: line 2 of the same payer"},
		{"a time that is none", "op,from,to,asset,amount_minor,valid_until\ntransfer,alice,bob,ron,5,soon\n", "f:2: valid_until: "},
		{"a hold of a year", "op,from,to,asset,amount_minor,expires_in_s\nhold,alice,bob,ron,5,31536000\n", "f:2: expires_in_s: must be 1 to 2592000"},
		{"a long memo", "op,to,asset,amount_minor,memo\nissue,alice,ron,5," + strings.Repeat("x", 129) + "\n", "f:2: memo: "},
		{"a txid that is none", "op,hold\ncapture,tx_1\n", "f:2: hold: "},
		{"two faults", head + "give,a,b,ron,1\ntransfer,a,b,ron,x\n", "f:3: amount_minor: "},
		{"an unknown member", `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD","x":1}`, "f:1: "},
		{"no json", "{\n", "f:1: "},
		{"an endless line", `{"op":"` + strings.Repeat("x", maxBatchLine+1) + "\n", "f:1: the line is longer"},
		{"many faults", head + strings.Repeat("give,a,b,ron,1\n", 30), "and 10 more"},
	} {
		_, err := parseBatch("f", strings.NewReader(tt.in))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

// CSV and NDJSON of the same operations are the same batch.
func TestBatchFormsAreOne(t *testing.T) {
	csv := "memo,op,from,to,asset,amount_minor\nx,transfer,alice,bob,ron,5\n"
	lines := `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5","memo":"x"}`
	var sums []string
	for _, in := range []string{csv, lines} {
		rows, err := parseBatch("f", strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		d, err := inputDigest(rows)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, d.String())
	}
	if sums[0] != sums[1] {
		t.Errorf("%v", sums)
	}
}

func TestBatchStateFiles(t *testing.T) {
	plan := batchPlan{Version: 1, Input: "b3:x", Mode: modeIndependent, Rows: 2}
	path := filepath.Join(t.TempDir(), "s")
	s, steps, err := openBatchState(path, plan)
	if err != nil || len(steps) != 0 {
		t.Fatalf("%v, %v", steps, err)
	}
	if _, _, err := openBatchState(path, plan); judge(err).code != exitLocked {
		t.Errorf("a second run: %v", err)
	}
	if err := s.write(batchStep{No: 0, Rows: []span{{0, 1}}}); err != nil {
		t.Fatal(err)
	}
	s.close()
	s, steps, err = openBatchState(path, plan)
	if err != nil || len(steps) != 1 || steps[0].Rows[0] != (span{0, 1}) {
		t.Fatalf("%v, %v", steps, err)
	}
	s.close()
	other := plan
	other.Input = "b3:y"
	if _, _, err := openBatchState(path, other); judge(err).reason != "other_batch" {
		t.Errorf("another file: %v", err)
	}
	for name, text := range map[string]string{"no plan": "{}\n", "text": "hello\n", "a step that is none": `{"ronbox_batch":1,"input":"b3:x","mode":"independent","rows":2}` + "\n{\"x\":1}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openBatchState(path, plan); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	b := &batchRun{rows: make([]batchRow, 2), mode: modeIndependent}
	for name, steps := range map[string][]batchStep{
		"settled before sent": {{No: 0, Settled: true}},
		"another number":      {{No: 1}},
		"sent twice":          {{No: 0}, {No: 0}},
		"rows that are not":   {{No: 0, Rows: []span{{0, 9}}}, {No: 0, Settled: true}},
	} {
		if _, err := b.begin(steps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzBatchFile(f *testing.F) {
	f.Add("op,from,to,asset,amount_minor\ntransfer,alice,bob,ron,5\n")
	f.Add(`{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n")
	f.Fuzz(func(t *testing.T, in string) {
		rows, err := parseBatch("f", strings.NewReader(in))
		if err != nil {
			return
		}
		for i := range rows {
			if _, err := newBatchRow(rows[i].line, rows[i].op); err != nil {
				t.Errorf("an accepted row is refused: %v", err)
			}
		}
	})
}
