package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// job is a batch file and the run of its verb.
type job struct {
	path  string
	flags batchFlags
	exit  int
	doc   batchDoc
	warn  string
}

func newJob(t testing.TB, text string, f batchFlags) *job {
	t.Helper()
	if f.chunk == 0 {
		f.chunk = 1000
	}
	j := &job{path: filepath.Join(t.TempDir(), "pay.csv"), flags: f}
	j.write(t, text)
	return j
}

func (j *job) write(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(j.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (j *job) state() string { return statePath(j.path, &j.flags) }

// run runs the verb once.
func (j *job) run(t tester, f batchNode) error {
	t.Helper()
	var out, warn bytes.Buffer
	a := app{cli.New(nil, &out, &warn, server.Build{})}
	a.Flags.JSON = true
	err := a.batch(t.Context(), f, j.path, j.flags)
	j.exit, j.doc, j.warn = a.Exit, batchDoc{}, warn.String()
	if err == nil {
		if err := json.Unmarshal(out.Bytes(), &j.doc); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
	}
	return err
}

// payments returns a file of n payments of 1 from account a.
func payments(n int) string {
	var b strings.Builder
	b.WriteString("op,from,to,asset,amount_minor,memo\n")
	for i := range n {
		fmt.Fprintf(&b, "transfer,a,b,ron,1,%d\n", i)
	}
	return b.String()
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return cli.Classify(err).Reason
}

// Each row is executed once or refused, through lost answers, kills, a state file that is missing,
// stale or truncated, and a concurrent second run. Running a finished file again changes nothing.
func TestBatchDoesEachRowOnce(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) // one draw a fault would make shrinking endless
		f := newFakeBank(rng.IntN)
		rows := rapid.IntRange(1, 25).Draw(t, "rows")
		f.balance["a"] = rapid.IntRange(0, 30).Draw(t, "balance")
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(path, []byte(payments(rows)), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := batchFlags{chunk: rapid.IntRange(1, 5).Draw(t, "chunk"), run: rapid.SampledFrom([]string{"", "x"}).Draw(t, "run")}
		jobs := [2]*job{{path: path, flags: flags}, {path: path, flags: flags}}
		jobs[1].flags.state = path + ".other"
		var stale []byte
		for tries, ended := 0, 0; ended < len(jobs); tries++ {
			j := jobs[ended]
			if rng.IntN(3) == 0 {
				j = jobs[1]
			}
			switch err := j.run(t, quick{f}); {
			case err == nil && j == jobs[ended]:
				ended++
			case err != nil && !errors.Is(err, errKilled):
				t.Fatal(err)
			case tries > 2000:
				t.Fatal("no end")
			}
			switch rng.IntN(6) {
			case 0:
				_ = os.Remove(j.state())
			case 1:
				stale, _ = os.ReadFile(j.state())
			case 2:
				if err := os.WriteFile(j.state(), stale, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.draw = sound
		for _, j := range jobs {
			if err := j.run(t, f); err != nil {
				t.Fatal(err)
			}
			if len(f.memos)+len(j.doc.Refused) != rows && len(j.doc.Refused) == 0 || j.doc.PaidNow != 0 {
				t.Fatalf("%d done, told %+v", len(f.memos), j.doc)
			}
		}
		seen := map[string]bool{}
		for _, m := range f.memos {
			if seen[m] {
				t.Fatalf("row %s was done twice", m)
			}
			seen[m] = true
		}
		if len(f.memos) != min(rows, len(f.memos)+f.balance["a"]) {
			t.Fatalf("%d of %d rows were done, %d are left", len(f.memos), rows, f.balance["a"])
		}
	})
}

// quick is a node to which a request is repeated at once after a lost answer.
type quick struct{ *fakeBank }

func (q quick) Batch(ctx context.Context, key string, b walletapi.Batch) (got walletapi.BatchPosted, err error) {
	for {
		if got, err = q.fakeBank.Batch(ctx, key, b); !errors.Is(err, client.ErrUnknown) {
			return got, err
		}
	}
}

// The report of a run separates rows that it executed from rows executed earlier. Each outcome has
// an exit code.
func TestBatchTellsNowFromBefore(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 4
	j := newJob(t, payments(6), batchFlags{chunk: 4})
	want := func(doc string, exit, accepted, now, before, refused int) {
		t.Helper()
		if err := j.run(t, f); err != nil {
			t.Fatal(err)
		}
		d := j.doc
		if j.exit != exit || d.Accepted != accepted || d.PaidNow != now || d.PaidBefore != before ||
			len(d.Refused) != refused || len(f.memos) != d.Accepted {
			t.Fatalf("%s: exit %d, %+v, %d done", doc, j.exit, d, len(f.memos))
		}
	}
	want("poor", cli.ExitSomeRefused, 4, 4, 0, 2)
	f.balance["a"] = 5
	want("again", cli.ExitSomeRefused, 4, 0, 4, 2)
	j.flags.retry = true
	want("tried again", 0, 6, 2, 4, 0)
	want("nothing refused", cli.ExitNothingLeft, 6, 0, 6, 0)
	j.write(t, payments(8))
	j.flags.retry = false
	want("grown", 0, 8, 2, 6, 0)
	if err := os.Remove(j.state()); err != nil {
		t.Fatal(err)
	}
	want("without its state", cli.ExitNothingLeft, 8, 0, 8, 0)
	if len(j.doc.Before) != 1 || j.doc.Before[0] != (span{2, 9}) || !strings.Contains(j.warn, "8 of 8 operations were done") ||
		!strings.Contains(j.warn, "paid now 0") {
		t.Errorf("%+v\n%s", j.doc, j.warn)
	}
	requests := f.requests
	want("with the state that it made", cli.ExitNothingLeft, 8, 0, 8, 0)
	if f.requests != requests {
		t.Error("a finished file was sent")
	}
}

func TestBatchAtomic(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 4
	j := newJob(t, payments(6), batchFlags{atomic: true})
	if err := j.run(t, f); err != nil || len(f.memos) != 0 || len(j.doc.Refused) != 6 ||
		j.doc.Refused[4].Reason != "insufficient_funds" || j.doc.Refused[0].Reason != "aborted" {
		t.Fatalf("%v, %+v", err, j.doc)
	}
	f.balance["a"], j.flags.retry = 6, true
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 6 || f.requests != 2 {
		t.Fatalf("%v, %+v", err, j.doc)
	}
	j.write(t, payments(7))
	if err := j.run(t, f); reasonOf(err) != "other_batch" {
		t.Errorf("a grown atomic file: %v", err)
	}
	j = newJob(t, payments(maxChunkOps+1), batchFlags{atomic: true})
	if err := j.run(t, f); reasonOf(err) != "too_large" {
		t.Errorf("too large: %v", err)
	}
}

// Rows that were executed in a closed period are neither paid again nor counted as refused, in a
// batch of any mode, and not sent again.
func TestBatchOfClosedRows(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 5
	j := newJob(t, payments(3), batchFlags{run: "x"})
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 3 || j.doc.Closed != nil {
		t.Fatalf("%v, %+v", err, j.doc)
	}
	f.closed = true
	j = newJob(t, payments(7), batchFlags{run: "x"})
	for _, sent := range []int{1, 0} {
		f.requests = 0
		if err := j.run(t, f); err != nil || j.exit != cli.ExitSomeRefused || len(j.doc.Closed) != 3 ||
			len(j.doc.Refused) != 2 || j.doc.Accepted != 2 || !strings.Contains(j.warn, "3 of 7") || f.requests != sent {
			t.Fatalf("%v, exit %d, %d requests, %+v, %s", err, j.exit, f.requests, j.doc, j.warn)
		}
	}
	f.balance["a"], j.flags.retry = 9, true
	f.requests = 0
	if err := j.run(t, f); err != nil || len(j.doc.Closed) != 3 || len(j.doc.Refused) != 0 || j.doc.PaidNow != 2 ||
		j.exit != cli.ExitSomeRefused || len(f.memos) != 7 {
		t.Errorf("again: %v, exit %d, %+v", err, j.exit, j.doc)
	}
	j = newJob(t, payments(2), batchFlags{run: "x", atomic: true})
	if err := j.run(t, f); err != nil || len(j.doc.Closed) != 1 || len(j.doc.Refused) != 1 ||
		j.exit != cli.ExitSomeRefused || len(f.memos) != 7 {
		t.Errorf("atomic: %v, exit %d, %+v", err, j.exit, j.doc)
	}
}

// With --run a row is identified by its number, and a row that differs from the executed one is
// refused. Without --run a row is identified by its content.
func TestBatchReferences(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 100
	edited := strings.Replace(payments(3), "ron,1,1", "ron,2,1", 1)
	j := newJob(t, payments(3), batchFlags{run: "x"})
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 3 || f.refs["x/3"].receipt == nil {
		t.Fatalf("%v, %+v, %v", err, j.doc, f.refs)
	}
	j.write(t, edited)
	if err := j.run(t, f); reasonOf(err) != "other_batch" {
		t.Errorf("edited, under its state: %v", err)
	}
	j.flags.state = j.path + ".other"
	if err := j.run(t, f); err != nil || j.doc.PaidBefore != 2 || j.doc.Refused[0].Reason != "reference_conflict" {
		t.Errorf("edited, without its state: %v, %+v", err, j.doc)
	}
	j = newJob(t, payments(3)+"transfer,a,b,ron,1,1\n", batchFlags{})
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 4 {
		t.Errorf("%v, %+v", err, j.doc)
	}
	j = newJob(t, edited, batchFlags{})
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 1 || j.doc.PaidBefore != 2 {
		t.Errorf("edited, without a name: %v, %+v", err, j.doc)
	}
	j = newJob(t, "op,from,to,asset,amount_minor,reference\ntransfer,a,b,ron,1,inv 7\n", batchFlags{run: "x"})
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 1 || f.refs["inv 7"].receipt == nil {
		t.Errorf("a reference of its own: %v, %+v", err, j.doc)
	}
}

// Without --run, rows that were executed long ago stop the run until it has a --run name or its
// state file.
func TestBatchOfAnotherMonth(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"], f.since = 100, time.Now().Add(-25*time.Hour)
	if err := newJob(t, payments(3), batchFlags{}).run(t, f); err != nil {
		t.Fatal(err)
	}
	j := newJob(t, payments(5), batchFlags{chunk: 3})
	for range 2 {
		if err := j.run(t, f); reasonOf(err) != "done_before" || len(f.memos) != 3 {
			t.Fatalf("%v, %d done", err, len(f.memos))
		}
	}
	j.flags.run = "y"
	for range 2 {
		if err := j.run(t, f); err != nil || len(f.memos) != 8 {
			t.Errorf("%v, %d done", err, len(f.memos))
		}
		_ = os.Remove(j.state())
	}
}

// New rows beside rows of another month are paid and recorded. Neither the same command nor the
// suggested one pays them twice.
func TestBatchKeepsWhatItPaidBesideAnotherMonth(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"], f.since = 100, time.Now().Add(-25*time.Hour)
	if err := newJob(t, payments(3), batchFlags{}).run(t, f); err != nil {
		t.Fatal(err)
	}
	j := newJob(t, payments(5), batchFlags{})
	for _, now := range []int{2, 0} {
		err := j.run(t, f)
		stop, _ := errors.AsType[*cli.Failure](err)
		if reasonOf(err) != "done_before" || len(f.memos) != 5 || stop.Details["batch"].(batchDoc).PaidNow != now {
			t.Fatalf("%v, %d done, want %d of them now: %v", err, len(f.memos), now, stop.Details)
		}
	}
}

// If a refusal names a row, the message names its line. The same command continues the run.
func TestBatchRefusedWhole(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 9
	f.deny = func(walletapi.Batch) error {
		return &wire.Problem{Status: 403, Reason: "forbidden", Details: map[string]any{"index": 1.0}}
	}
	j := newJob(t, payments(3), batchFlags{})
	if err := j.run(t, f); err == nil || !strings.Contains(err.Error(), "line 3: ") ||
		cli.Classify(err).Code != cli.ExitDenied {
		t.Errorf("%v", err)
	}
	f.deny = nil
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 3 {
		t.Errorf("%v, %+v", err, j.doc)
	}
}

// A state file of another ledger, or of this one before a restore, stops the run.
func TestBatchOfAnotherLedger(t *testing.T) {
	f := newFakeBank(sound)
	f.balance["a"] = 2
	j := newJob(t, payments(4), batchFlags{})
	if err := j.run(t, f); err != nil {
		t.Fatal(err)
	}
	j.flags.retry = true
	other := newFakeBank(sound)
	other.balance["a"] = 9
	if err := j.run(t, other); reasonOf(err) != "other_ledger" || len(other.memos) != 0 {
		t.Errorf("%v", err)
	}
	j.flags.state = j.path + ".other"
	if err := j.run(t, other); err != nil || len(other.memos) != 4 {
		t.Errorf("%v", err)
	}
}

func TestBatchStates(t *testing.T) {
	f := newFakeBank(sound)
	j := newJob(t, payments(2), batchFlags{})
	for name, text := range map[string]string{
		"a person's file": "precious", "a list": "[]", "a plan alone": `{"ronbox_batch":3}x`, "a layout of the future": `{"ronbox_batch":4}`,
		"an earlier layout": `{"ronbox_batch":2,"run":"","input":"b3:x","mode":"independent","rows":2}` + "\n",
		"no such row":       `{"ronbox_batch":3,"rows":2,"done":[[0,2]]}`, "two results": `{"ronbox_batch":3,"rows":2,"done":[[0,1]],"refused":[{"row":1}]}`,
	} {
		if err := os.WriteFile(j.state(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := j.run(t, f)
		if is, _ := os.ReadFile(j.state()); reasonOf(err) != "malformed" || string(is) != text || f.requests != 0 {
			t.Errorf("%s became %q: %v", name, is, err)
		}
	}
	j.flags.state = filepath.Join(t.TempDir(), "none", "s")
	if err := j.run(t, f); reasonOf(err) == "" || !strings.Contains(cli.Classify(err).Next, "run the same command again") {
		t.Errorf("a state that cannot be written: %v", err)
	}
}

// A file can be corrected and sent with the same state file if no row of it was executed.
func TestBatchCorrected(t *testing.T) {
	f := newFakeBank(sound)
	j := newJob(t, payments(2), batchFlags{})
	if err := j.run(t, f); err != nil || len(j.doc.Refused) != 2 {
		t.Fatalf("%v, %+v", err, j.doc)
	}
	f.balance["a"] = 9
	j.write(t, payments(1))
	if err := j.run(t, f); err != nil || j.doc.PaidNow != 1 {
		t.Errorf("%v, %+v", err, j.doc)
	}
}

// The state file of a release whose refusals had codes is read.
func TestBatchOfAReleaseWithCodes(t *testing.T) {
	f := newFakeBank(sound)
	j := newJob(t, payments(2), batchFlags{})
	if err := j.run(t, f); err != nil || len(j.doc.Refused) != 2 {
		t.Fatalf("%v, %+v", err, j.doc)
	}
	raw, err := os.ReadFile(j.state())
	if err != nil {
		t.Fatal(err)
	}
	old := strings.ReplaceAll(string(raw), `"reason":`, `"code":"INSUFFICIENT_FUNDS","reason":`)
	if old == string(raw) {
		t.Fatalf("no refusal in %s", raw)
	}
	if err := os.WriteFile(j.state(), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := f.requests
	if err := j.run(t, f); err != nil || len(j.doc.Refused) != 2 || f.requests != asked {
		t.Errorf("%v, %+v, %d requests", err, j.doc, f.requests-asked)
	}
}

// A state file with any content is refused, or refers to existing rows, each at most once.
func FuzzBatchState(f *testing.F) {
	f.Add(`"done":[[0,2]],"refused":[{"row":3}]`)
	f.Add(`"done":[[0,2],[2,3]]`)
	f.Add(`"done":[[3,-1]],"before":[[5,9]]`)
	f.Fuzz(func(t *testing.T, text string) {
		var s batchState
		if json.Unmarshal([]byte(`{"ronbox_batch":3,"rows":4,`+text+`}`), &s) != nil {
			return
		}
		settled, sound := s.settled()
		if !sound {
			return
		}
		left := 0
		for _, is := range settled {
			if !is {
				left++
			}
		}
		if n := len(s.pending()); n != left || n+count(s.Done)+len(s.Refused) != s.Rows {
			t.Fatalf("%d rows wait of %+v", n, s)
		}
	})
}

// tester is the part of testing.T and rapid.T that the tests use.
type tester interface {
	rapid.TB
	Context() context.Context
}
