package ledger

import (
	"errors"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A missing asset row does not free its number for the next asset. Otherwise amounts of the missing
// asset would be reported in the wrong asset.
func TestMissingAssetIsNoOther(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"ron", "gold"} {
		s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: name}}})
	}
	s.end()
	s.pass(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "usd"}}})
	s.end()
	b := newBooks(s.b.idem, deaf{})
	l := &Local{books: b}
	r := s.tx.Reader()
	for _, read := range []func(store.Reader) error{b.loadRecent, l.readAssets, l.readEnd, l.readHead} {
		if err := read(r); err != nil {
			t.Fatal(err)
		}
	}
	b.cur.assets = (&assets{}).with(b.cur.assets.of(1)) // the row of gold is missing
	walk := &journalWalk{next: b.rowsTo + 1, no: b.cur.hand.low.Batches + 1}
	var damage *damageError
	if err := walk.step(r, b.cur.Batches, 10, b.again); !errors.As(err, &damage) || b.cur.assets.of(2) != nil {
		t.Errorf("redone over a hole: %v, asset 2 is %+v", err, b.cur.assets.of(2))
	}
}

// Reading the assets fails if a refs row between two others is missing.
func TestMissingAssetIsDamage(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"ron", "gold", "usd"} {
		s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: name}}})
	}
	s.end()
	s.pass(t)
	if _, err := storetest.Do(s.tx, lostAsset{2}); err != nil {
		t.Fatal(err)
	}
	b := newBooks(s.b.idem, deaf{})
	var damage *damageError
	if err := (&Local{books: b}).readAssets(s.tx.Reader()); !errors.As(err, &damage) || b.cur.assets.of(2) != nil {
		t.Errorf("read over a hole: %v, asset 2 is %+v", err, b.cur.assets.of(2))
	}
}

// lostAsset is a command that deletes the name of an asset from the file.
type lostAsset struct{ ref uint32 }

func (lostAsset) Kind() string { return "ledger.lose/1" }

func (c lostAsset) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	refs := tables.Buckets()[6]
	for k := range r.Range(refs, nil, nil) {
		if k[0] == 's' && k[len(k)-1] == byte(c.ref) {
			w.Delete(refs, append([]byte(nil), k...))
		}
	}
	return struct{}{}, nil
}
