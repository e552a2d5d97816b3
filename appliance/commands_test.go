package appliance

import (
	"testing"

	"ronbox/engines"
	"ronbox/store"
	"ronbox/store/storetest"
)

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
