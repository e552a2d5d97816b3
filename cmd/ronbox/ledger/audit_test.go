package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	"ronbox/store"
)

// fakeLog is a ledger of batches without records. It has heads and consistency proofs.
type fakeLog struct {
	batches []record.Batch
	nodes   map[uint64]b3.Digest
	refuse  error
	bend    func(c *record.Consistency) // falsifies a proof
	below   uint64                      // batches before it are in closed periods
}

func newFakeLog(n int, salt byte) *fakeLog {
	f := &fakeLog{nodes: map[uint64]b3.Digest{}}
	for range n {
		f.grow(salt)
	}
	return f
}

func (f *fakeLog) grow(salt byte) {
	b := record.Batch{
		No:     uint64(len(f.batches)) + 1,
		First:  uint64(len(f.batches)) + 1,
		Count:  1,
		At:     int64(len(f.batches)) + 1,
		Merkle: b3.Digest{salt},
	}
	if len(f.batches) > 0 {
		b.Prev = f.batches[len(f.batches)-1].Root()
	}
	f.add(b)
}

func (f *fakeLog) add(b record.Batch) {
	nodes, _ := merkle.LogNodes(uint64(len(f.batches)), b.Root(), f.Node)
	for _, n := range nodes {
		f.nodes[n.Pos] = n.Hash
	}
	f.batches = append(f.batches, b)
}

func (f *fakeLog) Batch(no uint64) (record.Batch, error) { return f.batches[no-1], nil }

func (f *fakeLog) Node(pos uint64) (b3.Digest, error) { return f.nodes[pos], nil }

func (f *fakeLog) Record(uint64) ([]byte, error) { return nil, nil }

func (f *fakeLog) Opened(uint64) (uint64, error) { return 0, nil }

func (f *fakeLog) Declared(uint32) (seq uint64, err error) { return 0, nil }

func (f *fakeLog) Past(uint64) record.Past { return nil }

func (f *fakeLog) LedgerHead(context.Context) (ledgerapi.LedgerHead, error) {
	h, err := record.HeadOf(f, uint64(len(f.batches)))
	return ledgerapi.LedgerHead{
		Batches:  h.Batches,
		LogRoot:  h.Root.String(),
		LastRoot: h.LastRoot.String(),
		Seq:      h.Seq,
	}, err
}

func (f *fakeLog) Consistency(_ context.Context, from, to uint64) ([]byte, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	if from < f.below {
		return nil, &wire.Problem{Status: 410, Reason: "period_closed"}
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

// An audit accepts a ledger only if it extends the ledger of the last audit.
func TestLedgerAudit(t *testing.T) {
	forked := newFakeLog(3, 1)
	for range 5 {
		forked.grow(2)
	}
	for _, tt := range []struct {
		doc  string
		then *fakeLog // log at the second look; the first look sees 5 batches
		bend func(f *fakeLog)
		code int
		want string
	}{
		{"the same", newFakeLog(5, 1), nil, cli.ExitDone, `"ok":true`},
		{"grown", newFakeLog(9, 1), nil, cli.ExitDone, `"looks":2`},
		{"lost", newFakeLog(4, 1), nil, cli.ExitBad, "what was done is gone"},
		{"emptied", newFakeLog(0, 1), nil, cli.ExitBad, "what was done is gone"},
		{"another of the same length", newFakeLog(5, 2), nil, cli.ExitBad, "another root after 5 batches"},
		{"forked", forked, nil, cli.ExitBad, "something else than what was asked"},
		{"forked, with another's proof", forked, func(f *fakeLog) {
			f.bend = func(c *record.Consistency) { c.From.Root = b3.Digest{9} }
		}, cli.ExitBad, "something else"},
		{"a proof that proves nothing", newFakeLog(9, 1), func(f *fakeLog) {
			f.bend = func(c *record.Consistency) { c.Path[0] = b3.Digest{9} }
		}, cli.ExitBad, "not shown to begin"},
		{"no proof", newFakeLog(9, 1), func(f *fakeLog) {
			f.refuse = &wire.Problem{Status: 404, Reason: "not_found"}
		}, cli.ExitBad, "gives no proof"},
		{"busy", newFakeLog(9, 1), func(f *fakeLog) {
			f.refuse = &wire.Problem{Status: 503, Reason: "degraded", Retryable: true}
		}, cli.ExitBusy, ""},
	} {
		state := filepath.Join(t.TempDir(), "state")
		look := func(f *fakeLog) (int, string) {
			var out bytes.Buffer
			a := app{cli.New(nil, &out, &bytes.Buffer{}, server.Build{})}
			a.Flags.JSON = true
			err := a.audit(t.Context(), f, state, "")
			if err != nil {
				return cli.Classify(err).Code, out.String()
			}
			return a.Exit, out.String()
		}
		first := newFakeLog(5, 1)
		if code, out := look(first); code != cli.ExitDone || !strings.Contains(out, `"first":true`) {
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
		// A failed audit leaves the state of the first look unchanged.
		if code, out := look(first); tt.code != cli.ExitDone && code != cli.ExitDone {
			t.Errorf("%s: the ledger of the first look is refused afterwards: exit %d, %s", tt.doc, code, out)
		}
	}
}

func TestLedgerAuditStates(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "another format": `{"format":"x","head":{"batches":0,"log_root":"` + b3.Digest{}.String() + `","last_root":"` + b3.Digest{}.String() + `","seq":0},"at":"2026-01-01T00:00:00Z","looks":1}`,
	} {
		state := filepath.Join(t.TempDir(), "state")
		if err := cli.ReplaceFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := app{cli.New(nil, &bytes.Buffer{}, &bytes.Buffer{}, server.Build{})}
		if err := a.audit(t.Context(), newFakeLog(1, 1), state, ""); cli.Classify(err).Code != cli.ExitFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// logOf returns the log of a ledger with closed periods.
func logOf(t *testing.T, db, dir string) *fakeLog {
	t.Helper()
	f := &fakeLog{nodes: map[uint64]b3.Digest{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.zst"))
	for _, file := range files {
		raw, errRead := os.ReadFile(file)
		z, errMake := zstd.NewReader(nil)
		text, errText := z.DecodeAll(raw, nil)
		err = errors.Join(err, errRead, errMake, errText)
		for line := range bytes.Lines(text) {
			l, errLine := record.ParsePeriodLine(bytes.TrimSuffix(line, []byte{'\n'}))
			if err = errors.Join(err, errLine); l.Kind == record.LineBatch {
				f.add(l.Entry.Batch)
			}
		}
	}
	f.below = uint64(len(f.batches))
	err = errors.Join(err, cli.ViewDatabase(t.Context(), db, func(r store.Reader) error {
		for _, b := range tables.Batches(r, f.below+1, tables.LastBatch(r)+1) {
			f.add(b)
		}
		return nil
	}))
	if err != nil || f.below == 0 || f.below == uint64(len(f.batches)) {
		t.Fatal(len(f.batches), err)
	}
	return f
}

// An audit after a head in a closed period needs the files of the periods. They must lead to that
// head, and on to the ledger of the node.
func TestLedgerAuditOfClosedPeriods(t *testing.T) {
	db, dir := closedNode(t, 2)
	_, others := closedNode(t, 2)
	node := logOf(t, db, dir)
	cut := t.TempDir()
	first := record.PeriodFile(1)
	if err := os.Link(filepath.Join(dir, first), filepath.Join(cut, first)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc   string
		dir   string
		alien bool // the head of the last audit is of another ledger
		code  int
		want  string
	}{
		{"without the files", "", false, cli.ExitFailed, "has no proof from there on"},
		{"with the files", dir, false, cli.ExitDone, `"periods":2`},
		{"with the first alone", cut, false, cli.ExitFailed, "has no proof from there on"},
		{"with those of another ledger", others, false, cli.ExitBad, "is known to have had"},
		{"of a head that the files do not have", dir, true, cli.ExitBad, "is known to have had"},
	} {
		state := filepath.Join(t.TempDir(), "state")
		look := func(f *fakeLog, dir string) (int, string) {
			var out bytes.Buffer
			a := app{cli.New(nil, &out, &bytes.Buffer{}, server.Build{})}
			a.Flags.JSON = true
			if err := a.audit(t.Context(), f, state, dir); err != nil {
				return cli.Classify(err).Code, err.Error()
			}
			return a.Exit, out.String()
		}
		before := &fakeLog{nodes: map[uint64]b3.Digest{}}
		before.add(node.batches[0])
		if tt.alien {
			before = newFakeLog(1, 7)
		}
		if code, out := look(before, ""); code != cli.ExitDone {
			t.Fatalf("the first look: exit %d, %s", code, out)
		}
		if code, out := look(node, tt.dir); code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit %d, %s", tt.doc, code, out)
		}
	}
}
