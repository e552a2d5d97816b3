package ledger_test

import (
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// What is previewed on a ledger at rest is what comes, but for nonces and keys, which are left to Apply.
func TestPreview(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	dice, refused := ledgertest.NewDice(7), 0
	for range 400 {
		clock.Advance(time.Minute)
		o := dice.Op()
		seen, err := r.l.Preview(r.ctx(), []ledger.Op{o})
		if err != nil {
			t.Fatal(err)
		}
		out := r.commit(o)[0]
		dice.Note(o, out)
		if o.Code == record.OpBatch || o.Code == record.OpFlags || o.Code == record.OpAsset || out.Replayed || skips(out.Reject) {
			continue
		}
		if (seen[0] == nil) != (out.Reject == nil) || seen[0] != nil && seen[0].Code != out.Reject.Code {
			t.Fatalf("%+v: previewed %v, came %v", o, seen[0], out.Reject)
		}
		if seen[0] != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: the test shows nothing")
	}
}

func skips(r *ledger.Reject) bool {
	return r != nil && (r.Code == record.NonceReused || r.Code == record.NonceGap || r.Code == record.IdemConflict)
}

// Ops of a burst see those before them.
func TestPreviewSeesTheBurst(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	head, _ := r.l.Head(r.ctx())
	seen, err := r.l.Preview(r.ctx(), []ledger.Op{
		transfer("alice", "bob", 5, 1), issue("alice", 5, 1), transfer("alice", "bob", 5, 1), transfer("alice", "bob", 1, 2), transfer("bob", "carol", 5, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []record.Result{record.InsufficientFunds, record.Accepted, record.Accepted, record.InsufficientFunds, record.Accepted} {
		got := record.Accepted
		if seen[i] != nil {
			got = seen[i].Code
		}
		if got != want {
			t.Errorf("op %d: %v, want %v", i, got, want)
		}
	}
	if now, _ := r.l.Head(r.ctx()); now != head {
		t.Errorf("a preview has written: %+v", now)
	}
}
