package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// fakeLog is a ledger of batches without records, enough for heads and what lies between them.
type fakeLog struct {
	batches []record.Batch
	nodes   map[uint64]b3.Digest
	refuse  error
	bend    func(c *record.Consistency) // falsifies a proof
}

func newFakeLog(n int, salt byte) *fakeLog {
	f := &fakeLog{nodes: map[uint64]b3.Digest{}}
	for range n {
		f.grow(salt)
	}
	return f
}

func (f *fakeLog) grow(salt byte) {
	b := record.Batch{No: uint64(len(f.batches)) + 1, First: uint64(len(f.batches)) + 1, Count: 1, At: int64(len(f.batches)) + 1, Merkle: b3.Digest{salt}}
	if len(f.batches) > 0 {
		b.Prev = f.batches[len(f.batches)-1].Root()
	}
	nodes, _ := record.LogNodes(uint64(len(f.batches)), b.Root(), f.Node)
	for _, n := range nodes {
		f.nodes[n.Pos] = n.Hash
	}
	f.batches = append(f.batches, b)
}

func (f *fakeLog) Batch(no uint64) (record.Batch, error)   { return f.batches[no-1], nil }
func (f *fakeLog) Node(pos uint64) (b3.Digest, error)      { return f.nodes[pos], nil }
func (f *fakeLog) Record(uint64) ([]byte, error)           { return nil, nil }
func (f *fakeLog) Opened(uint64) (uint64, error)           { return 0, nil }
func (f *fakeLog) Declared(uint32) (seq uint64, err error) { return 0, nil }

func (f *fakeLog) LedgerHead(context.Context) (wire.LedgerHead, error) {
	h, err := record.HeadOf(f, uint64(len(f.batches)))
	return wire.LedgerHead{Batches: h.Batches, LogRoot: h.Root.String(), LastRoot: h.LastRoot.String(), Seq: h.Seq}, err
}

func (f *fakeLog) Consistency(_ context.Context, from, to uint64) ([]byte, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	c, err := record.ProveConsistency(f, from, to)
	if err != nil {
		return nil, err
	}
	if f.bend != nil {
		f.bend(&c)
	}
	return json.Marshal(c)
}

// An audit passes a ledger that has only grown, and no other.
func TestLedgerAudit(t *testing.T) {
	forked := newFakeLog(3, 1)
	for range 5 {
		forked.grow(2)
	}
	for _, tt := range []struct {
		doc  string
		then *fakeLog // what the second look meets, after a ledger of 5 batches
		bend func(f *fakeLog)
		code int
		want string
	}{
		{"the same", newFakeLog(5, 1), nil, exitDone, `"ok":true`},
		{"grown", newFakeLog(9, 1), nil, exitDone, `"looks":2`},
		{"lost", newFakeLog(4, 1), nil, exitBad, "what was done is gone"},
		{"emptied", newFakeLog(0, 1), nil, exitBad, "what was done is gone"},
		{"another of the same length", newFakeLog(5, 2), nil, exitBad, "another root after 5 batches"},
		{"forked", forked, nil, exitBad, "something else than what was asked"},
		{"forked, with another's proof", forked, func(f *fakeLog) {
			f.bend = func(c *record.Consistency) { c.From.Root = b3.Digest{9} }
		}, exitBad, "something else"},
		{"a proof that proves nothing", newFakeLog(9, 1), func(f *fakeLog) {
			f.bend = func(c *record.Consistency) { c.Path[0] = b3.Digest{9} }
		}, exitBad, "not shown to begin"},
		{"no proof", newFakeLog(9, 1), func(f *fakeLog) {
			f.refuse = &wire.Problem{Status: 404, Reason: "not_found"}
		}, exitBad, "gives no proof"},
		{"busy", newFakeLog(9, 1), func(f *fakeLog) {
			f.refuse = &wire.Problem{Status: 503, Reason: "degraded", Retryable: true}
		}, exitBusy, ""},
	} {
		state := filepath.Join(t.TempDir(), "state")
		look := func(f *fakeLog) (int, string) {
			var out bytes.Buffer
			a := &app{stdout: &out, stderr: &bytes.Buffer{}, now: now, flags: flags{json: true}}
			err := a.ledgerAudit(t.Context(), f, state)
			if err != nil {
				return judge(err).code, out.String()
			}
			return a.exit, out.String()
		}
		first := newFakeLog(5, 1)
		if code, out := look(first); code != exitDone || !strings.Contains(out, `"first":true`) {
			t.Fatalf("the first look: exit %d, %s", code, out)
		}
		if tt.bend != nil {
			tt.bend(tt.then)
		}
		code, out := look(tt.then)
		tt.then.bend, tt.then.refuse = nil, nil
		if code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit %d, %s", tt.doc, code, out)
		}
		if code, out := look(first); tt.code != exitDone && code != exitDone { // the state still holds the first
			t.Errorf("%s: the ledger of the first look is refused afterwards: exit %d, %s", tt.doc, code, out)
		}
	}
}

func TestLedgerAuditStates(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "another format": `{"format":"x","head":{"batches":0,"log_root":"` + b3.Digest{}.String() + `","last_root":"` + b3.Digest{}.String() + `","seq":0},"at":"2026-01-01T00:00:00Z","looks":1}`,
	} {
		state := filepath.Join(t.TempDir(), "state")
		if err := replaceFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, now: now}
		if err := a.ledgerAudit(t.Context(), newFakeLog(1, 1), state); judge(err).code != exitFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fakeJournal exports lines and breaks off as a script says.
type fakeJournal struct {
	batches [][]string // the lines of each
	first   []record.Batch
	breaks  []int // after so many lines, one connection each; then no more
	other   bool  // goes on with another ledger
	away    int   // so often there is no node after the first connection
	asked   int
}

func newFakeJournal(n int) *fakeJournal {
	f := &fakeJournal{}
	prev, seq := b3.Digest{}, uint64(1)
	for no := 1; no <= n; no++ {
		b := record.Batch{No: uint64(no), First: seq, Count: uint64(no%3 + 1), At: int64(no), Prev: prev}
		var lines []string
		for i := range b.Count {
			r := record.Record{Op: record.OpOpen, Seq: seq + i, Batch: b.No, At: b.At, From: seq + i, Name: fmt.Sprint("n", seq+i)}
			raw := r.Append(nil)
			l := record.Line{Kind: record.LineRecord, Raw: raw, Record: r, Names: record.Names{From: r.Name}}
			lines = append(lines, string(l.Append(nil)))
		}
		l := record.Line{Kind: record.LineBatch, Batch: b}
		f.batches = append(f.batches, append(lines, string(l.Append(nil))))
		f.first = append(f.first, b)
		prev, seq = b.Root(), seq+b.Count
	}
	return f
}

func (f *fakeJournal) ExportLedger(_ context.Context, from, _ uint64, _ bool, each func([]byte) error) error {
	if f.asked++; f.asked > 1 && f.asked <= f.away+1 {
		return fmt.Errorf("x: %w", client.ErrNotReachable)
	}
	left := -1
	if len(f.breaks) > 0 {
		left, f.breaks = f.breaks[0], f.breaks[1:]
	}
	var lines []string
	for i, b := range f.first {
		if b.First < from {
			continue
		}
		if len(lines) == 0 {
			l := record.Line{Kind: record.LineFormat, From: from, Prev: b.Prev}
			if f.other && from > 1 {
				l.Prev = b3.Digest{9}
			}
			lines = append(lines, string(l.Append(nil)))
		}
		lines = append(lines, f.batches[i]...)
	}
	for _, l := range lines {
		if left--; left == -1 {
			return fmt.Errorf("cut: %w", client.ErrUnknown)
		}
		if err := each([]byte(strings.TrimSuffix(l, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// However often an export breaks, each line is written once, in order.
func TestExportGoesOnWhereItBroke(t *testing.T) {
	run := func(f *fakeJournal) (string, *exporter, error) {
		var out bytes.Buffer
		e := &exporter{repeater: impatient(), node: f, out: &out, from: 1, done: func(uint64) {}}
		err := e.run(t.Context())
		return out.String(), e, err
	}
	whole, e, err := run(newFakeJournal(12))
	if err != nil || e.batches != 12 || e.records != 24 || e.bytes != int64(len(whole)) {
		t.Fatalf("%v, %+v", err, e)
	}
	for at := range strings.Count(whole, "\n") + 2 {
		f := newFakeJournal(12)
		f.breaks = []int{at, 3, 0, 7, 1}
		if got, _, err := run(f); err != nil || got != whole {
			t.Fatalf("broken after %d lines: %v, %s", at, err, clip(got, 2000))
		}
	}
	stuck := newFakeJournal(12)
	stuck.breaks = make([]int, 20)
	if _, _, err := run(stuck); judge(err).code != exitBusy {
		t.Errorf("an export that never begins: %v", err)
	}
	other := newFakeJournal(12)
	other.breaks, other.other = []int{9}, true
	if _, _, err := run(other); judge(err).code != exitBad {
		t.Errorf("an export that goes on with another ledger: %v", err)
	}
}

// Who follows waits for a node that has gone away as long as it takes, and is told so; who does not gives it up.
func TestFollowersWaitForTheNode(t *testing.T) {
	refused := &wire.Problem{Status: 503, Reason: "draining", Retryable: true}
	for _, tt := range []struct {
		doc     string
		follow  bool
		breaks  []int
		first   error // of the first connection, nil: it breaks off as breaks say
		away    int
		code    int
		printed bool
	}{
		{"a follower, broken off midway", true, []int{9}, nil, 50, exitDone, true}, {"a follower, refused at first", true, nil, refused, 50, exitDone, true},
		{"an export", false, []int{9}, nil, 50, exitUnreachable, false}, {"an export of a node that comes back", false, []int{9}, nil, 3, exitDone, true},
		{"a follower of no node", true, nil, client.ErrNotReachable, 0, exitUnreachable, false},
	} {
		f := newFakeJournal(12)
		f.breaks, f.away = tt.breaks, tt.away
		var out bytes.Buffer
		told := 0
		e := &exporter{repeater: impatient(), node: &failsFirst{f, tt.first}, out: &out, from: 1, follow: tt.follow, done: func(uint64) {}}
		e.forEver, e.retrying = tt.follow, func(string, ...any) { told++ }
		err := e.run(t.Context())
		if code := codeOf(err); code != tt.code || (e.batches == 12) != tt.printed || tt.code == exitDone && told <= tt.away {
			t.Errorf("%s: %v, %d batches, told %d times", tt.doc, err, e.batches, told)
		}
	}
}

func codeOf(err error) int {
	if err == nil {
		return exitDone
	}
	return judge(err).code
}

// failsFirst is a journal whose first connection comes to nothing.
type failsFirst struct {
	*fakeJournal
	err error
}

func (f *failsFirst) ExportLedger(ctx context.Context, from, to uint64, follow bool, each func([]byte) error) error {
	if f.err != nil && f.asked == 0 {
		f.asked++
		return f.err
	}
	return f.fakeJournal.ExportLedger(ctx, from, to, follow, each)
}
