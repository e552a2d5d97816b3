package wallet

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
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

func newFakeRun(f batchNode, rows []batchRow, mode string, most int) *batchRun {
	return &batchRun{
		Repeater: impatient(), node: f, rows: rows, owner: ownerOf(""), mode: mode, most: most, now: time.Now,
		done: func(int, int) {}, looked: func(int64) {}, notice: func(string, ...any) {},
	}
}

// tester is a test, drawn or not.
type tester interface {
	rapid.TB
	Context() context.Context
}

// runFake runs a batch once, as the verb does.
func runFake(t tester, f batchNode, rows []batchRow, state, mode string, most int, retry bool) (*batchRun, error) {
	b := newFakeRun(f, rows, mode, most)
	s, steps, err := openState(state, batchPlan{Version: stateVersion, Input: inputDigest(rows), Mode: mode, Rows: len(rows)}, rows)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.sync = func() error { return nil } // what a crash cuts off is drawn
	b.state = s
	open, err := b.begin(steps)
	if err == nil && retry && open == nil {
		err = b.retryRefused()
	}
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
			b, err = runFake(t, f, rows, state, modeIndependent, most, false)
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) && !errors.Is(err, client.ErrUnknown) && cli.Classify(err).Reason != "nonce_taken" {
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
		again, err := runFake(t, f, rows, state, modeIndependent, most, false)
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
		row, err := newBatchRow(i+2, walletapi.BatchOp{
			Op: walletapi.OpTransfer, From: names[from], To: names[(from+1)%3], Asset: "ron", Memo: fmt.Sprint(i),
			AmountMinor: fmt.Sprint(rapid.IntRange(1, 10).Draw(t, "amount")),
		})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := identify(rows); err != nil {
		t.Fatal(err)
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
		a := app{cli.New(nil, &out, io.Discard, appliance.Build{})}
		a.Flags.JSON = true
		if err := a.batch(t.Context(), f, path, batchFlags{chunk: 4, retry: retry}); err != nil {
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
			b, err = runFake(t, f, rows, filepath.Join(dir, fmt.Sprint(n)), modeAtomic, maxChunkOps, false)
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

// A file of which nothing was done may be corrected and sent under the same state; one that has begun may not.
func TestBatchCorrected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pay.csv")
	refuse := true
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 9
	f.deny = func(b walletapi.Batch) error {
		if refuse {
			return &wire.Problem{Status: http.StatusForbidden, Code: "FORBIDDEN", Reason: "forbidden"}
		}
		return nil
	}
	run := func(rows string) error {
		if err := os.WriteFile(path, []byte("op,from,to,asset,amount_minor\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		a := app{cli.New(nil, io.Discard, io.Discard, appliance.Build{})}
		return a.batch(t.Context(), f, path, batchFlags{chunk: 4})
	}
	for range 2 {
		if err := run("transfer,a,b,ron,3\n"); cli.Classify(err).Code != cli.ExitDenied {
			t.Errorf("refused: %v", err)
		}
	}
	refuse = false
	if err := run("transfer,a,b,ron,2\n"); err != nil || f.balance["b"] != 2 {
		t.Errorf("corrected: %v, b has %d", err, f.balance["b"])
	}
	if err := run("transfer,a,b,ron,4\n"); !isOtherBatch(err) || f.balance["b"] != 2 {
		t.Errorf("changed when it was done: %v, b has %d", err, f.balance["b"])
	}
}

// A state that another ledger made, or this one before it was restored, says nothing about what was done here.
func TestBatchOfAnotherLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pay.csv")
	if err := os.WriteFile(path, []byte("op,from,to,asset,amount_minor\ntransfer,a,b,ron,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(f *fakeBank) error {
		a := app{cli.New(nil, io.Discard, io.Discard, appliance.Build{})}
		return a.batch(t.Context(), f, path, batchFlags{chunk: 4})
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
		if err := run(there); err == nil || cli.Classify(err).Reason != "other_ledger" {
			t.Errorf("on another node: %v", err)
		}
		there.post(walletapi.BatchOp{Op: walletapi.OpTransfer, From: "a", To: "b", Asset: "ron", AmountMinor: "1", Nonce: 1}, "")
	}
}

// An account without funds costs a request a row, not a chunk a row, and holds up nobody.
func TestBatchOfABrokeAccount(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["rich"] = 1000
	var rows []batchRow
	for i := range 400 {
		op := walletapi.BatchOp{Op: walletapi.OpTransfer, From: "broke", To: "x", Asset: "ron", AmountMinor: "1", Memo: fmt.Sprint(i)}
		if i%2 == 0 {
			op.From = "rich"
		}
		row, err := newBatchRow(i+2, op)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	b := newFakeRun(f, rows, modeIndependent, 100)
	if err := identify(rows); err != nil {
		t.Fatal(err)
	}
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

// A run tells what it has paid itself from what was done before, and each outcome has an exit code: a job of every month
// that forgets to name its run must not stay green.
func TestBatchTellsNowFromBefore(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 10
	path := filepath.Join(t.TempDir(), "pay.csv")
	row := func(amount string) string { return "transfer,a,b,ron," + amount + ",\n" }
	lose := func() { f.deny = func(walletapi.Batch) error { return errKilled } }
	for _, tt := range []struct {
		doc       string
		first     func()
		text      string
		flags     batchFlags
		now, done int
		code      int
		warned    string
	}{
		{"first", nil, row("1"), batchFlags{}, 1, 0, cli.ExitDone, ""},
		{"again", nil, row("1"), batchFlags{}, 0, 1, cli.ExitNothingLeft, "paid now 0, done before 1, refused 0"},
		{"its state lost", func() { _ = os.Remove(path + ".state") }, row("1"), batchFlags{}, 0, 1, cli.ExitNothingLeft, "paid now 0, done before 1"},
		{"grown", nil, row("1") + row("2"), batchFlags{}, 1, 1, cli.ExitDone, ""},
		{"one refused", nil, row("1") + row("2") + row("99"), batchFlags{}, 0, 2, cli.ExitSomeRefused, "paid now 0, done before 2, refused 1"},
		{"tried again", func() { f.balance["a"] = 200 }, row("1") + row("2") + row("99"), batchFlags{retry: true}, 1, 2, cli.ExitDone, ""},
		{"of another name", nil, row("1"), batchFlags{run: "two"}, 1, 0, cli.ExitDone, ""},
		{"killed", lose, row("3"), batchFlags{run: "three"}, 0, 0, cli.ExitFailed, ""},
		{"goes on", func() { f.deny = nil }, row("3"), batchFlags{run: "three"}, 1, 0, cli.ExitDone, ""},
		{"malformed", nil, row("x"), batchFlags{}, 0, 0, cli.ExitFileUnfit, ""},
		{"empty", nil, "", batchFlags{}, 0, 0, cli.ExitFileUnfit, ""},
		{"a list", nil, "[]", batchFlags{}, 0, 0, cli.ExitFileUnfit, ""},
	} {
		if tt.first != nil {
			tt.first()
		}
		if err := os.WriteFile(path, []byte(payHead+tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.text == "[]" {
			_ = os.WriteFile(path, []byte(tt.text), 0o600)
		}
		var out, errs strings.Builder
		a := app{cli.New(nil, &out, &errs, appliance.Build{})}
		a.Flags.JSON, a.Flags.Quiet = true, true
		tt.flags.chunk = 4
		err := a.batch(t.Context(), f, path, tt.flags)
		code := a.Exit
		if err != nil {
			code = cli.Classify(err).Code
		}
		if code != tt.code || !strings.Contains(errs.String(), tt.warned) || tt.warned == "" && strings.Contains(errs.String(), "paid now") {
			t.Errorf("%s: exit %d, want %d: %v, %s%s", tt.doc, code, tt.code, err, out.String(), errs.String())
		}
		if want := fmt.Sprintf(`"paid_now":%d,"paid_before":%d,`, tt.now, tt.done); err == nil && !strings.Contains(out.String(), want) {
			t.Errorf("%s: want %s: %s", tt.doc, want, out.String())
		}
	}
}

// What an earlier run has paid and could not record is of before, also when its request is sent again.
func TestBatchPaidByAKilledRun(t *testing.T) {
	for _, forgot := range []bool{false, true} {
		n := 2 // the node does it, and the run dies
		f := newFakeBank(func(int) int { return n })
		f.balance["a"] = 10
		path := filepath.Join(t.TempDir(), "pay.csv")
		if _, err := payAt(t, f, path, payHead+"transfer,a,b,ron,1,\n", batchFlags{chunk: 4}); !errors.Is(err, errKilled) || len(f.memos) != 1 {
			t.Fatalf("%v, %d done", err, len(f.memos))
		}
		if n = 7; forgot {
			clear(f.answers)
		}
		out, err := payAt(t, f, path, payHead+"transfer,a,b,ron,1,\n", batchFlags{chunk: 4})
		if err != nil || len(f.memos) != 1 || !strings.Contains(out, `"paid_now":0,"paid_before":1,`) {
			t.Errorf("forgot %t: %v, %d done: %s", forgot, err, len(f.memos), out)
		}
	}
}
