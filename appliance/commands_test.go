package appliance

import (
	"strings"
	"testing"

	"ronbox/engines"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A second first key is not added: whoever asks gets the one that is there.
func TestAddKidOnce(t *testing.T) {
	tx := storetest.NewTx(t, authBucket)
	first, err := storetest.Do(tx, addKid{ID: "kid/A", Salt: []byte("salt")})
	if err != nil || first != "kid/A" {
		t.Fatalf("%s, %v", first, err)
	}
	again, err := storetest.Do(tx, addKid{ID: "kid/B", Salt: []byte("pepper")})
	if err != nil || again != "kid/A" {
		t.Errorf("second key: %s, %v", again, err)
	}
	n := 0
	for id, row := range kids.All(tx.Reader()) {
		if n++; id != "kid/A" || row.State != kidActive || string(row.Salt) != "salt" {
			t.Errorf("%s: %+v", id, row)
		}
	}
	if n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
}

// What the node does outside the file leaves a row that names who asked.
func TestNoteNamesTheActor(t *testing.T) {
	tx := storetest.NewTx(t, authBucket)
	uid := uint32(1000)
	by := engines.Actor{CapID: "01T", Principal: "ops", UID: &uid}
	if _, err := storetest.Do(tx, auditNote{auditEvent("node.drain", by, "corr", map[string]string{"k": "v"})}); err != nil {
		t.Fatal(err)
	}
	rows, err := store.Audit(tx.Reader(), 0, 10)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := store.Event{Event: "node.drain", Decision: "allow", CorrID: "corr", CapID: "01T", Principal: "ops", UID: "1000"}
	got := rows[0].Event
	if got.Detail["k"] != "v" {
		t.Errorf("detail %v", got.Detail)
	}
	got.Detail = nil
	if got.Event != want.Event || got.CorrID != want.CorrID || got.CapID != want.CapID || got.Principal != want.Principal || got.UID != want.UID {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A keyring that has read nothing knows nothing.
func TestEmptyKeyring(t *testing.T) {
	var k keyring
	if _, ok := k.Root("x"); ok || k.Active() != "" || k.Epoch() != 0 || k.Revoked("x") {
		t.Error("an empty keyring answers")
	}
}

func TestKidsAreFresh(t *testing.T) {
	a, errA := newKid()
	b, errB := newKid()
	if errA != nil || errB != nil || a.ID == b.ID || string(a.Salt) == string(b.Salt) || len(a.Salt) != saltLen {
		t.Errorf("%+v %+v %v %v", a, b, errA, errB)
	}
	if !strings.HasPrefix(string(a.ID), kidPrefix) {
		t.Errorf("id %s", a.ID)
	}
}
