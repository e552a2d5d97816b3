package ledger_test

import (
	"errors"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// lose is a command that deletes a row, as a bug would.
type lose struct {
	bucket *store.Bucket
	key    []byte
}

func (lose) Kind() string { return "ledger.lose/1" }

func (c lose) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Delete(c.bucket, c.key)
	return struct{}{}, nil
}

// A missing row that must exist according to the journal does not count as zero. An operation that
// needs the row puts the ledger into safe mode.
func TestLostRowMovesNothing(t *testing.T) {
	var hold record.TxID
	pay := func(o ledger.Op) func(*rig) error {
		return func(r *rig) error {
			if o.Code == record.OpCapture {
				o.Hold = hold
			}
			_, err := r.l.Commit(r.ctx(), []ledger.Op{o})
			return err
		}
	}
	show := func(account string) func(*rig) error {
		return func(r *rig) error {
			_, err := r.l.Balance(r.ctx(), account, "ron", 0)
			return err
		}
	}
	const issuer, alice, bob = 1, 2, 3 // in the order of opening
	state := func(ref, asset byte) []byte { return []byte{7: ref, 11: asset} }
	for _, tt := range []struct {
		name   string
		bucket string
		key    []byte
		needs  func(*rig) error
	}{
		{"a balance that is credited", "state", state(alice, 1), pay(issue("alice", 1, 4))},
		{"a balance that is debited", "state", state(alice, 1), pay(transfer("alice", "carol", 1, 3))},
		{"a balance that is read", "state", state(alice, 1), show("alice")},
		{"the balance of who was paid alone", "state", state(bob, 1), show("bob")},
		{"the balance of an issuance account", "state", state(issuer, 1), pay(issue("carol", 1, 4))},
		{"an account that pays", "state", state(alice, 0), pay(transfer("alice", "carol", 1, 3))},
		{"an account that is paid", "state", state(bob, 0), pay(transfer("alice", "bob", 1, 3))},
		{"an account that is read", "state", state(bob, 0), func(r *rig) error { _, err := r.l.Account(r.ctx(), "bob"); return err }},
		{"a hold", "holds", nil, pay(ledger.Op{Code: record.OpCapture})},
		{"the name of a ref", "refs", []byte{0: 'a', 8: bob}, func(r *rig) error { _, err := r.l.Tx(r.ctx(), hold); return err }},
	} {
		r := newRig(t, nil, neverVerified).declare("ron")
		r.accept(issue("alice", 100, 1))
		hold = r.accept(ledger.Op{
			Code: record.OpHold, From: "alice", To: "bob", Asset: "ron", Amount: amount(10), Nonce: 1, ExpiresIn: time.Hour,
		})[0].Receipt.TxID
		for range 8 { // until the rows have come to rest
			if _, err := r.l.FlushSlice(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		key := tt.key
		if key == nil {
			key = r.keys(bucket(tt.bucket))[0]
		}
		if n := len(r.keys(bucket("recent"))); n != 0 {
			t.Fatalf("%d rows are recent", n)
		}
		r.spoilt(lose{bucket(tt.bucket), key})
		if why := r.l.SafeMode(); why != "" {
			t.Fatalf("%s: safe mode after a boot: %s", tt.name, why)
		}
		if err := tt.needs(r); !errors.Is(err, ledger.ErrSafeMode) && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if r.l.SafeMode() == "" {
			t.Errorf("%s: not in safe mode", tt.name)
		}
		t.Logf("%s: %s", tt.name, r.l.SafeMode())
		r.stop()
	}
}
