package wallet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wallet"
)

const payHead = "op,from,to,asset,amount_minor,memo\n"

// sameRows are three payments, two of which say the same.
const sameRows = payHead + "transfer,a,b,ron,1,\ntransfer,a,b,ron,1,\ntransfer,a,b,ron,2,\n"

// A file whose state is not there is not done again: every row is known by what it says, by which of the equal rows it
// is, and by the name of its run.
func TestBatchWithoutItsState(t *testing.T) {
	const tail = "transfer,a,b,ron,1,\ntransfer,a,c,ron,9,\n"
	none, both, all := "[]", "[[2,3]]", "[[2,4]]"
	for _, tt := range []struct {
		doc    string
		file   string
		flags  batchFlags
		age    time.Duration
		blind  bool
		forgot bool // the node has forgotten its keys
		done   int  // payments in all, after the 3 of the first run
		before string
		reason string
	}{
		{"the same", sameRows, batchFlags{chunk: 4}, 0, false, false, 3, all, ""},
		{"after the keys", sameRows, batchFlags{chunk: 4}, 23 * time.Hour, false, true, 3, all, ""},
		{"in other chunks", sameRows, batchFlags{chunk: 1}, 0, false, false, 3, all, ""},
		{"all or none", sameRows, batchFlags{chunk: 4, atomic: true}, 0, false, false, 3, all, ""},
		{"grown", sameRows + tail, batchFlags{chunk: 4}, 0, false, false, 5, all, ""},
		{"grown, all or none", sameRows + tail, batchFlags{chunk: 4, atomic: true}, 0, false, false, 3, none, "done_before"},
		{"another order", payHead + "transfer,a,b,ron,2,\ntransfer,a,b,ron,1,\ntransfer,a,b,ron,1,\n", batchFlags{chunk: 4}, 0, false, false, 3, all, ""},
		{"a row edited", strings.Replace(sameRows, "ron,2", "ron,3", 1), batchFlags{chunk: 4}, 0, false, false, 4, both, ""},
		{"a row taken out", payHead + "transfer,a,b,ron,1,\n", batchFlags{chunk: 4}, 0, false, false, 3, "[[2,2]]", ""},
		{"under another name", sameRows, batchFlags{chunk: 4, run: "december"}, 0, false, false, 6, none, ""},
		{"days later", sameRows, batchFlags{chunk: 4}, 25 * time.Hour, false, true, 3, none, "done_before"},
		{"months later", sameRows, batchFlags{chunk: 4}, 60 * 24 * time.Hour, false, true, 6, none, ""},
		{"by who may not read statements", sameRows, batchFlags{chunk: 4}, 0, true, false, 3, none, reasonUnread},
		{"by who may not, with given nonces", "op,from,to,asset,amount_minor,nonce\ntransfer,a,b,ron,1,4\n", batchFlags{chunk: 4}, 0, true, false, 4, none, ""},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			f := newFakeBank(func(int) int { return 7 })
			f.balance["a"] = 100
			f.since -= int64(tt.age)
			if out, err := payFile(t, f, sameRows, batchFlags{chunk: 4}); err != nil || len(f.memos) != 3 {
				t.Fatalf("%v, %d done: %s", err, len(f.memos), out)
			}
			if f.blind = tt.blind; tt.forgot {
				clear(f.answers)
			}
			out, err := payFile(t, f, tt.file, tt.flags)
			if reason := reasonOf(err); reason != tt.reason || len(f.memos) != tt.done {
				t.Fatalf("%v, %d done: %s", err, len(f.memos), out)
			}
			if want := fmt.Sprintf(`"done_before":%s,`, tt.before); err == nil && !strings.Contains(out, want) {
				t.Errorf("want %s: %s", want, out)
			}
		})
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return cli.Classify(err).Reason
}

// payFile runs a batch once, in a directory of its own.
func payFile(t *testing.T, f *fakeBank, text string, flags batchFlags) (string, error) {
	t.Helper()
	return payAt(t, f, filepath.Join(t.TempDir(), "pay.csv"), text, flags)
}

// payAt runs a batch once, with the state that is beside its file.
func payAt(t *testing.T, f *fakeBank, path, text string, flags batchFlags) (string, error) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	a := app{cli.New(nil, &out, io.Discard, appliance.Build{})}
	a.Flags.JSON = true
	err := a.batch(t.Context(), f, path, flags)
	return out.String(), err
}

// A file that has grown at its end goes on under its state, but for an atomic one; one that was changed does not.
func TestBatchGrown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pay.csv")
	f := newFakeBank(func(int) int { return 7 })
	f.balance["a"] = 100
	run := func(text string, atomic bool) error {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := app{cli.New(nil, io.Discard, io.Discard, appliance.Build{})}
		return a.batch(t.Context(), f, path, batchFlags{chunk: 2, atomic: atomic})
	}
	for _, tt := range []struct {
		text   string
		atomic bool
		done   int
		reason string
	}{
		{sameRows, false, 3, ""},
		{sameRows + "transfer,a,b,ron,2,\n", false, 4, ""},
		{sameRows + "transfer,a,b,ron,2,\ntransfer,a,b,ron,2,\n", false, 5, ""},
		{sameRows + "transfer,a,b,ron,2,\n", false, 5, otherBatch},
		{sameRows + "transfer,a,b,ron,2,\ntransfer,a,b,ron,3,\n", false, 5, otherBatch},
		{sameRows + "transfer,a,b,ron,2,\ntransfer,a,b,ron,2,\n", true, 5, otherBatch},
	} {
		if err := run(tt.text, tt.atomic); reasonOf(err) != tt.reason || len(f.memos) != tt.done {
			t.Errorf("%q: %v, %d done", tt.text, err, len(f.memos))
		}
	}
}

// A request of a run that was killed may still be done while the next run is under way, in other chunks: whoever takes a
// nonce may have done these very rows.
func TestBatchMeetsItsForerunner(t *testing.T) {
	for _, at := range []string{"a nonce is asked for", "rows are sent"} {
		f := newFakeBank(func(int) int { return 7 })
		f.balance["a"] = 100
		meet := sync.OnceFunc(func() {
			late := walletapi.Batch{Mode: modeIndependent}
			for i, n := range []string{"1", "1", "2"} {
				late.Ops = append(late.Ops, walletapi.BatchOp{Op: walletapi.OpTransfer, From: "a", To: "b", Asset: "ron", AmountMinor: n, Nonce: uint64(i + 1)})
			}
			_, _ = f.apply(ownerOf("")+"late", late)
		})
		if at == "rows are sent" {
			f.deny = func(walletapi.Batch) error { meet(); return nil }
		} else {
			f.asked = meet
		}
		if out, err := payFile(t, f, sameRows, batchFlags{chunk: 1}); err != nil || len(f.memos) != 3 || !strings.Contains(out, `"done_before":[[2,4]]`) {
			t.Errorf("when %s: %v, %d done: %s", at, err, len(f.memos), out)
		}
	}
}
