package ledger_test

import (
	"strings"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// forge is a command that changes a header, and updates the later headers and the head to match.
type forge struct {
	no     uint64
	change func(*record.Batch)
}

func (forge) Kind() string { return "ledger.forge/1" }

func (c forge) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	head, _ := tables.GetHead(r)
	next := tables.Head{Accounts: head.Accounts, Assets: head.Assets, OpenHolds: head.OpenHolds}
	for no := uint64(1); no <= head.Batches; no++ {
		h, _ := tables.Batch(r, no)
		if no == c.no {
			c.change(&h)
		} else {
			h.Prev = next.LastRoot
		}
		tables.PutBatch(w, &next, &h, nil)
	}
	tables.PutHead(w, next)
	return struct{}{}, nil
}

// Redone records are checked against their headers, and the headers against each other, at every
// verification level.
func TestRedoFindsForgedHeaders(t *testing.T) {
	none := func(c *ledger.Config) { c.VerifyOnOpen = ledger.VerifyNone }
	for _, tt := range []struct {
		name   string
		change func(*record.Batch)
		want   string
	}{
		{"none", func(*record.Batch) {}, ""},
		{"the root of its records", func(h *record.Batch) { h.Merkle[0] ^= 1 }, "do not lead to its root"},
		{"the batch before", func(h *record.Batch) { h.Prev[0] ^= 1 }, "does not name the root of the batch before"},
	} {
		for _, flushed := range []bool{false, true} {
			r := newRig(t, nil, none).declare("ron")
			r.accept(issue("alice", 1, 1))
			if flushed {
				if err := r.l.Flush(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range uint64(3) {
				r.accept(issue("alice", 1, i+2))
			}
			if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, forge{3, tt.change}); err != nil {
				t.Fatal(err)
			}
			r.safe = tt.want != ""
			r.reopen()
			if why := r.l.SafeMode(); !strings.Contains(why, tt.want) || (why == "") != (tt.want == "") {
				t.Errorf("%s, flushed %v: safe mode: %q, want %q", tt.name, flushed, why, tt.want)
			}
		}
	}
}
