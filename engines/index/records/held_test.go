package records

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/index/name/nametest"
	"ronbox/engines/index/tables"
)

// The kept records are bounded: of one owner, the one that expires first makes room.
func TestKeptRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		kept, owner := map[string]tables.HeldRow{}, [32]byte(nametest.Public(nametest.Key(2)))
		at := func(i int) ownerRecord {
			k := nametest.Parse(fmt.Sprintf("name:n%d.a.example", i))
			row := tables.HeldRow{
				Raw: []byte("signed"), Signer: owner, Seq: 1, ExpiresMS: int64(i + 1),
			}
			return ownerRecord{k.String(), row}
		}
		for i := range maxHeld - 1 {
			kept[fmt.Sprintf("name:m%d.a.example", i)] = tables.HeldRow{Signer: owner, ExpiresMS: 1 << 40}
		}
		for i := range 5 {
			if err := r.held.hold(r.ctx(), kept, at(i)); err != nil {
				t.Fatal(err)
			}
			if len(kept) > maxHeld {
				t.Fatalf("%d are kept", len(kept))
			}
		}
		if got := r.kept(); !slices.Equal(got, []string{"name:n4.a.example"}) {
			t.Errorf("kept %q, want the last of those that expire first", got)
		}
		if err := r.held.hold(r.ctx(), kept, ownerRecord{key: "name:n4.a.example"}); err != nil || len(r.kept()) != 0 {
			t.Errorf("dropped: %v, %q", err, r.kept())
		}
	})
}

// Renewals ask the owners of today again, and drop the records that are not by them, have expired
// or have damaged keys.
func TestRenewalDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		by := [32]byte(nametest.Public(r.owner))
		kept, end := map[string]tables.HeldRow{}, time.Now().Add(time.Hour).UnixMilli()
		hold := func(k string, signer [32]byte, end int64) {
			row := tables.HeldRow{Raw: []byte("signed"), Signer: signer, Seq: 1, ExpiresMS: end}
			if err := r.held.hold(r.ctx(), kept, ownerRecord{k, row}); err != nil {
				t.Fatal(err)
			}
		}
		hold("name:good.example", by, end)
		hold("name:other.example", [32]byte{1}, end)
		hold("name:old.example", by, time.Now().UnixMilli())
		kept["no key"] = tables.HeldRow{}
		if err := r.held.renew(r.ctx(), kept); err != nil {
			t.Fatal(err)
		}
		if got := r.kept(); len(kept) != 1 || !slices.Equal(got, []string{"name:good.example"}) {
			t.Errorf("kept %q, known %v", got, kept)
		}
		if !slices.Equal(r.asked, []string{"name:good.example"}) {
			t.Errorf("asked %q", r.asked)
		}
		r.owner = nil
		if err := r.held.renew(r.ctx(), kept); err != nil || len(kept) != 0 || len(r.kept()) != 0 {
			t.Errorf("without an owner: %v: %v, %q", err, kept, r.kept())
		}
	})
}

// An owner of many names displaces its own records and not those of others, however late they
// expire.
func TestLeastKeptRecord(t *testing.T) {
	many, few := [32]byte{2}, [32]byte{1}
	kept := map[string]tables.HeldRow{
		"name:a.many": {Signer: many, ExpiresMS: 90}, "name:b.many": {Signer: many, ExpiresMS: 80},
		"name:c.many": {Signer: many, ExpiresMS: 85}, "name:a.few": {Signer: few, ExpiresMS: 10},
	}
	if got := leastOf(kept); got != "name:b.many" {
		t.Errorf("dropped %s", got)
	}
}
