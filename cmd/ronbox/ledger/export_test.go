package ledger

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impatient returns a Repeater that repeats at once and prints no message.
func impatient() cli.Repeater {
	return cli.Repeater{
		Sleep:    func(context.Context, time.Duration) error { return nil },
		Retrying: func(string, ...any) {},
	}
}

// fakeJournal exports lines. Its connections break according to a script.
type fakeJournal struct {
	batches [][]string // lines of each batch
	first   []record.Batch
	breaks  []int // lines sent by each connection that breaks; later ones do not break
	other   bool  // another ledger continues the export
	away    int   // failed connections after the first one
	asked   int
}

func newFakeJournal(n int) *fakeJournal {
	f := &fakeJournal{}
	prev, seq := b3.Digest{}, uint64(1)
	for no := 1; no <= n; no++ {
		b := record.Batch{No: uint64(no), First: seq, Count: uint64(no%3 + 1), At: int64(no), Prev: prev}
		var lines []string
		for i := range b.Count {
			r := record.Record{
				Op:    record.OpOpen,
				Seq:   seq + i,
				Batch: b.No,
				At:    b.At,
				From:  seq + i,
				Name:  fmt.Sprint("n", seq+i),
			}
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

// An export that breaks repeatedly writes each line once and in order.
func TestExportGoesOnWhereItBroke(t *testing.T) {
	run := func(f *fakeJournal) (string, *exporter, error) {
		var out bytes.Buffer
		e := &exporter{Repeater: impatient(), node: f, out: &out, from: 1, done: func(uint64) {}}
		err := e.run(t.Context())
		return out.String(), e, err
	}
	whole, e, err := run(newFakeJournal(12))
	if err != nil || e.batches != 12 || e.records != 24 {
		t.Fatalf("%v, %+v", err, e)
	}
	for at := range strings.Count(whole, "\n") + 2 {
		f := newFakeJournal(12)
		f.breaks = []int{at, 3, 0, 7, 1}
		if got, _, err := run(f); err != nil || got != whole {
			t.Fatalf("broken after %d lines: %v, %s", at, err, cli.Clip(got, 2000))
		}
	}
	stuck := newFakeJournal(12)
	stuck.breaks = make([]int, 20)
	if _, _, err := run(stuck); cli.Classify(err).Code != cli.ExitBusy {
		t.Errorf("an export that never begins: %v", err)
	}
	other := newFakeJournal(12)
	other.breaks, other.other = []int{9}, true
	if _, _, err := run(other); cli.Classify(err).Code != cli.ExitBad {
		t.Errorf("an export that goes on with another ledger: %v", err)
	}
}

// An export with --follow waits without limit for a node that is down, and prints a message. An
// export without --follow ends after a few tries.
func TestFollowersWaitForTheNode(t *testing.T) {
	refused := &wire.Problem{Status: 503, Reason: "draining", Retryable: true}
	for _, tt := range []struct {
		doc     string
		follow  bool
		breaks  []int
		first   error // error of the first connection; nil: it breaks after breaks[0] lines
		away    int
		code    int
		printed bool
	}{
		{"a follower, broken off midway", true, []int{9}, nil, 50, cli.ExitDone, true}, {"a follower, refused at first", true, nil, refused, 50, cli.ExitDone, true},
		{"an export", false, []int{9}, nil, 50, cli.ExitUnreachable, false}, {"an export of a node that comes back", false, []int{9}, nil, 3, cli.ExitDone, true},
		{"a follower of no node", true, nil, client.ErrNotReachable, 0, cli.ExitUnreachable, false},
	} {
		f := newFakeJournal(12)
		f.breaks, f.away = tt.breaks, tt.away
		var out bytes.Buffer
		told := 0
		e := &exporter{
			Repeater: impatient(),
			node:     &failsFirst{f, tt.first},
			out:      &out,
			from:     1,
			follow:   tt.follow,
			done:     func(uint64) {},
		}
		e.ForEver, e.Retrying = tt.follow, func(string, ...any) { told++ }
		err := e.run(t.Context())
		if code := codeOf(err); code != tt.code || (e.batches == 12) != tt.printed ||
			tt.code == cli.ExitDone && told <= tt.away {
			t.Errorf("%s: %v, %d batches, told %d times", tt.doc, err, e.batches, told)
		}
	}
}

func codeOf(err error) int {
	if err == nil {
		return cli.ExitDone
	}
	return cli.Classify(err).Code
}

// failsFirst is a journal that refuses the first connection.
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
