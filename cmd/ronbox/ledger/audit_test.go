package ledger

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

// fakeLog is a ledger of batches without records. It has heads and consistency proofs.
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
			err := a.audit(t.Context(), f, state)
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
		if err := a.audit(t.Context(), newFakeLog(1, 1), state); cli.Classify(err).Code != cli.ExitFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
