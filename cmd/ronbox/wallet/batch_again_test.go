package wallet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

const (
	oneRow = payHead + "transfer,a,b,ron,1,\n"
	oneNew = "transfer,a,c,ron,9,\n"
)

func richBank() *fakeBank {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 1000
	return f
}

// A file whose first runs could not look back, or were stopped by what they found, looks back in the next one, grown or not.
func TestBatchLooksBackUntilItCould(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		age  time.Duration
		stop func(f *fakeBank)
		mend func(f *fakeBank)
		done int
		last string
	}{
		{"stopped", 25 * time.Hour, func(f *fakeBank) { clear(f.answers) }, func(*fakeBank) {}, 3, reasonDoneBefore},
		{"not reached", 0, func(f *fakeBank) { f.down = true }, func(f *fakeBank) { f.down = false }, 4, ""},
		{"might not read", 0, func(f *fakeBank) { f.blind = true }, func(f *fakeBank) { f.blind = false; clear(f.answers) }, 4, ""},
		{"may not read yet", 0, func(f *fakeBank) { f.blind = true }, func(f *fakeBank) { clear(f.answers) }, 3, reasonUnread},
	} {
		f := richBank()
		f.since -= int64(tt.age)
		if _, err := payFile(t, f, sameRows, batchFlags{chunk: 4}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "pay.csv")
		tt.stop(f)
		if _, err := payAt(t, f, path, sameRows, batchFlags{chunk: 3}); err == nil {
			t.Fatalf("%s: nothing stopped it", tt.doc)
		}
		if tt.mend(f); tt.last != "" {
			_, _ = payAt(t, f, path, sameRows, batchFlags{chunk: 2})
		}
		grown := sameRows + oneNew
		for _, chunk := range []int{3, 2} {
			if _, err := payAt(t, f, path, grown, batchFlags{chunk: chunk}); reasonOf(err) != tt.last {
				t.Errorf("%s: %v", tt.doc, err)
			}
		}
		if len(f.memos) != tt.done {
			t.Errorf("%s: %d done", tt.doc, len(f.memos))
		}
	}
}

// A copy of the state that is put back tells of less than was done.
func TestBatchWithAnOldState(t *testing.T) {
	f := richBank()
	path := filepath.Join(t.TempDir(), "pay.csv")
	pay := func(text string, chunk int) {
		t.Helper()
		if _, err := payAt(t, f, path, text, batchFlags{chunk: chunk}); err != nil {
			t.Fatal(err)
		}
	}
	pay(oneRow, 4)
	old, err := os.ReadFile(path + ".state")
	if err != nil {
		t.Fatal(err)
	}
	pay(sameRows, 4)
	if err := os.WriteFile(path+".state", old, 0o600); err != nil {
		t.Fatal(err)
	}
	if pay(sameRows, 1); len(f.memos) != 3 {
		t.Errorf("%d done", len(f.memos))
	}
}

// A request that was about to be sent when the state was copied was refused in part; what was left of it was done with
// other nonces, one of which would fit now.
func TestBatchWithAnOldRequest(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 5
	path := filepath.Join(t.TempDir(), "pay.csv")
	text := payHead + "transfer,a,b,ron,9,\ntransfer,a,b,ron,1,\n"
	var old []byte
	f.deny = func(walletapi.Batch) (err error) {
		if old == nil {
			old, err = os.ReadFile(path + ".state")
		}
		return err
	}
	if _, err := payAt(t, f, path, text, batchFlags{chunk: 4}); err != nil || len(f.memos) != 1 {
		t.Fatalf("%v, %d done", err, len(f.memos))
	}
	clear(f.answers)
	if err := os.WriteFile(path+".state", old, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := payAt(t, f, path, text, batchFlags{chunk: 4})
	if err != nil || len(f.memos) != 1 || !strings.Contains(out, `"done_before":[[3,3]]`) {
		t.Errorf("%v, %d done: %s", err, len(f.memos), out)
	}
}

// A run that ended between writing a request down and sending it does not take the payment of another run for its own.
func TestBatchIsNotAnotherRun(t *testing.T) {
	f := richBank()
	path := filepath.Join(t.TempDir(), "pay.csv")
	text := payHead + "transfer,a,b,ron,5,\n"
	f.deny = func(walletapi.Batch) error { return context.Canceled }
	if _, err := payAt(t, f, path, text, batchFlags{chunk: 4, run: "nov"}); err == nil || len(f.memos) != 0 {
		t.Fatalf("%v, %d done", err, len(f.memos))
	}
	f.deny = nil
	for i, run := range []string{"dec", "nov", "nov", "dec"} {
		if _, err := payAt(t, f, path, text, batchFlags{chunk: 4, run: run}); err != nil || len(f.memos) != min(i+1, 2) {
			t.Errorf("%s: %v, %d done", run, err, len(f.memos))
		}
	}
}

// One row that was done lately does not make those of another month the same run.
func TestBatchJudgesByTheOldest(t *testing.T) {
	f := richBank()
	f.since -= int64(30 * 24 * time.Hour)
	_, err := payFile(t, f, sameRows, batchFlags{chunk: 4})
	f.since = time.Now().UnixNano() - int64(2*time.Hour)
	_, lately := payFile(t, f, payHead+oneNew, batchFlags{chunk: 4})
	if err = errors.Join(err, lately); err != nil {
		t.Fatal(err)
	}
	if _, err := payFile(t, f, sameRows+oneNew, batchFlags{chunk: 4}); reasonOf(err) != reasonDoneBefore || len(f.memos) != 4 {
		t.Errorf("%v, %d done", err, len(f.memos))
	}
}

// Of two equal rows one was done: the way on that the refusal names does the other.
func TestBatchLeadsOn(t *testing.T) {
	f := richBank()
	if _, err := payFile(t, f, oneRow, batchFlags{chunk: 4}); err != nil {
		t.Fatal(err)
	}
	_, err := payFile(t, f, oneRow+"transfer,a,b,ron,1,\n", batchFlags{chunk: 4, atomic: true})
	if reasonOf(err) != reasonDoneBefore || !strings.Contains(cli.Classify(err).Next, "still to be done") || !strings.Contains(cli.Classify(err).Next, "--run NAME") {
		t.Fatalf("%v", err)
	}
	if _, err := payFile(t, f, oneRow, batchFlags{chunk: 4, atomic: true, run: "rest"}); err != nil || len(f.memos) != 2 {
		t.Errorf("%v, %d done", err, len(f.memos))
	}
}

// A row in an asset that is not declared is refused and keeps nothing back, be its request cut off or not.
func TestBatchOfNoAsset(t *testing.T) {
	text := sameRows + "transfer,a,c,nope,9,\n"
	for _, killed := range []bool{false, true} {
		f := richBank()
		path := filepath.Join(t.TempDir(), "pay.csv")
		if killed {
			f.draw = func(int) int { return 2 } // done, and not told
			if _, err := payAt(t, f, path, text, batchFlags{chunk: 4}); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			f.draw = func(int) int { return 7 }
			clear(f.answers)
		}
		out, err := payAt(t, f, path, text, batchFlags{chunk: 4})
		if err != nil || len(f.memos) != 3 || !strings.Contains(out, `"accepted":3,"refused":[{"row":3,`) {
			t.Errorf("killed %t: %v, %d done: %s", killed, err, len(f.memos), out)
		}
	}
}

// An atomic file that was done whole is known by the rows that are looked for: what ends a hold is refused a second time.
func TestBatchAtomicWithAHold(t *testing.T) {
	f := richBank()
	if _, err := payFile(t, f, sameRows, batchFlags{chunk: 4, atomic: true}); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(sameRows, "\n", ",\n")
	text = strings.Replace(text, "memo,", "memo,hold", 1) + "release,,,,,,tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD\n"
	out, err := payFile(t, f, text, batchFlags{chunk: 4, atomic: true})
	if err != nil || len(f.memos) != 3 || !strings.Contains(out, `"accepted":3,"refused":[{"row":3,`) {
		t.Errorf("%v, %d done: %s", err, len(f.memos), out)
	}
}

// Where rows wait for nonces and their statement may not be read nothing more is sent, and a person is told whose it is; with a
// token that may read it the same command goes on.
func TestBatchStopsWhereItCannotLook(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		first string
		done  int
	}{
		{"both were done", sameRows + "transfer,c,b,ron,1,\n", 4},
		{"the other was not", sameRows, 4},
	} {
		f := richBank()
		f.balance["c"] = 9
		if _, err := payFile(t, f, tt.first, batchFlags{chunk: 4}); err != nil {
			t.Fatal(err)
		}
		path, before := filepath.Join(t.TempDir(), "pay.csv"), f.requests
		f.hidden = "c"
		_, err := payAt(t, f, path, sameRows+"transfer,c,b,ron,1,\n", batchFlags{chunk: 4})
		if reasonOf(err) != reasonUnread || f.requests != before || !strings.Contains(err.Error(), "what was done for c cannot be told") ||
			!strings.HasPrefix(cli.Classify(err).Next, "run it again with a token that may read that statement") {
			t.Errorf("%s: %v, then %q, %d requests", tt.doc, err, cli.Classify(err).Next, f.requests-before)
		}
		f.hidden = ""
		if _, err := payAt(t, f, path, sameRows+"transfer,c,b,ron,1,\n", batchFlags{chunk: 4}); err != nil || len(f.memos) != tt.done {
			t.Errorf("%s, with another token: %v, %d done", tt.doc, err, len(f.memos))
		}
	}
}

// A refused request leaves no key on the node, so a run that may not read statements never begins: nothing would tell the
// next one what was done of its other rows.
func TestBatchPaysNothingBlind(t *testing.T) {
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"], f.blind = 6, true
	const text = payHead + "transfer,a,b,ron,1,\ntransfer,a,b,ron,2,\ntransfer,a,b,ron,50,\ntransfer,a,b,ron,3,\n"
	for range 2 {
		if _, err := payFile(t, f, text, batchFlags{chunk: 4}); reasonOf(err) != reasonUnread || f.requests > 0 {
			t.Errorf("%v, %d requests", err, f.requests)
		}
		f.balance["a"] = 1000
	}
}

// Nor does a run go on that loses the right to read when another takes its nonce: that may have been for the same rows.
func TestBatchStopsWhenItCannotLookAgain(t *testing.T) {
	f := richBank()
	f.deny = func(walletapi.Batch) error {
		f.blind, f.nonces["a"] = true, 1
		return nil
	}
	if _, err := payFile(t, f, sameRows, batchFlags{chunk: 4}); reasonOf(err) != reasonUnread || f.requests != 1 || len(f.memos) != 0 {
		t.Errorf("%v, %d requests, %d done", err, f.requests, len(f.memos))
	}
}

// A key that is under way with other nonces is no reason for ever: when that request was refused the next run does the rows.
func TestBatchForgetsWhatCameToNothing(t *testing.T) {
	f := richBank()
	path := filepath.Join(t.TempDir(), "pay.csv")
	f.deny = func(walletapi.Batch) error {
		return &wire.Problem{Status: 422, Code: codeIdem, Reason: "idem_conflict"}
	}
	if _, err := payAt(t, f, path, sameRows, batchFlags{chunk: 4}); reasonOf(err) != reasonDoneBefore || !strings.Contains(cli.Classify(err).Next, "under way") {
		t.Fatalf("while it is under way: %v, then %q", err, cli.Classify(err).Next)
	}
	f.deny = nil
	if _, err := payAt(t, f, path, sameRows, batchFlags{chunk: 4}); err != nil || len(f.memos) != 3 {
		t.Errorf("afterwards: %v, %d done", err, len(f.memos))
	}
}

// What was found as done is told whatever is silenced: a payment in the same words is not made.
func TestBatchTellsWhatItFinds(t *testing.T) {
	f := richBank()
	path := filepath.Join(t.TempDir(), "pay.csv")
	for i, want := range []string{"", "3 of 3 operations were done before"} {
		if err := os.WriteFile(path, []byte(sameRows), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, told strings.Builder
		a := app{cli.New(nil, &out, &told, appliance.Build{})}
		a.Flags.Quiet = true
		err := a.batch(t.Context(), f, path, batchFlags{chunk: 4, state: filepath.Join(t.TempDir(), "s")})
		if err != nil || (want == "") != (told.Len() == 0) || !strings.Contains(told.String(), want) {
			t.Errorf("run %d: %v, %q", i, err, told.String())
		}
	}
}

// A state of another layout gets no advice that pays twice.
func TestBatchOfAnotherLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pay.csv")
	for _, text := range []string{`{"ronbox_batch":1,"input":"b3:aa","mode":"independent","rows":3}`, `{"ronbox_batch":3,"x":{}}`} {
		if err := os.WriteFile(path+".state", []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := payAt(t, richBank(), path, sameRows, batchFlags{chunk: 4})
		if reasonOf(err) != "malformed" || !strings.Contains(err.Error(), "cannot be found") || cli.Classify(err).Next != "finish it with the program that began it" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// drawSameRows are rows many of which say the same.
func drawSameRows(t *rapid.T, from, n int) []batchRow {
	names := []string{"a", "b", "c"}
	var rows []batchRow
	for i := range n {
		payer := rapid.IntRange(0, 2).Draw(t, "from")
		row, err := newBatchRow(from+i+2, walletapi.BatchOp{
			Op: walletapi.OpTransfer, From: names[payer], To: names[(payer+1)%3], Asset: "ron", AmountMinor: fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "amount")),
		})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// checkSame counts what was done by what it says: no more of it than there are rows, and no more told. An old state may
// tell as refused what was done since.
func checkSame(t *rapid.T, f *fakeBank, b *batchRun, rows []batchRow) {
	left := map[string]int{}
	for i := range rows {
		op := &rows[i].op
		left[op.From+op.To+op.AmountMinor]++
	}
	for i := range f.posted {
		op := &f.posted[i]
		says := op.From + op.To + op.AmountMinor
		if left[says]--; left[says] < 0 {
			t.Fatalf("%s was done more often than it stands there", says)
		}
	}
	if b != nil && (b.out.Accepted > len(f.posted) || b.out.Accepted+len(b.out.Refused) != len(rows)) {
		t.Fatalf("%d rows: %d done, told %+v", len(rows), len(f.posted), b.out)
	}
}

// Through lost answers, kills, states that are lost or put back from a copy, rows that are added or tried again, other
// chunks and runs after the last, no row is done twice, and each is done or refused.
func TestBatchDoesNoRowTwiceWithoutItsState(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		state := filepath.Join(dir, fmt.Sprint(n))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		f := newFakeBank(rng.IntN)
		for _, name := range []string{"a", "b", "c"} {
			f.balance[name] = rapid.IntRange(0, 20).Draw(t, "balance")
		}
		rows := drawSameRows(t, 0, rapid.IntRange(1, 15).Draw(t, "rows"))
		more := rapid.IntRange(0, 4).Draw(t, "runs after the last")
		var copies [][]byte
		for run := 0; more >= 0; run++ {
			if err := identify(rows); err != nil {
				t.Fatal(err)
			}
			if run > 2000 {
				t.Fatal("no end")
			}
			b, err := runFake(t, f, rows, state, modeIndependent, 1+rng.IntN(5), rng.IntN(3) == 0)
			if checkSame(t, f, nil, rows); err == nil {
				checkSame(t, f, b, rows)
				more--
			}
			if raw, err := os.ReadFile(state); err == nil {
				copies = append(copies, raw)
			}
			switch rng.IntN(6) {
			case 0:
				_ = os.Remove(state)
			case 1:
				if err := os.WriteFile(state, copies[rng.IntN(len(copies))], 0o600); err != nil {
					t.Fatal(err)
				}
			case 2:
				rows = append(rows, drawSameRows(t, len(rows), 1)...)
			}
			if rng.IntN(3) == 0 {
				clear(f.answers)
			}
		}
	})
}
