package tables

import (
	"bytes"
	"slices"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// attempt is a command of a function, which may fail.
type attempt func(r store.Reader, w *store.Writes) error

func (attempt) Kind() string { return "ledger.test/1" }

func (c attempt) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	return done, c(r, w)
}

// based returns a base with rows of each kind, and of each what a rebuild makes of it.
func based(t *testing.T) (tx *storetest.Tx, restored []attempt) {
	t.Helper()
	tx = storetest.NewTx(t, Buckets()...)
	rec := record.Record{
		Op: record.OpHold, Seq: 15, Batch: 3, At: 4, Expires: 9, From: 1, To: 2, Asset: 1,
		Amount: engines.AmountOf(0, 5),
	}
	account := Account{LastSeq: 4}
	balance := Balance{State: record.State{LastSeq: 9, CreditsPosted: engines.AmountOf(1, 2)}, Postings: 3}
	held := Hold{From: 1, To: 2, Asset: 1, Amount: rec.Amount, At: 4, Expires: 9}
	err := try(tx, func(_ store.Reader, w *store.Writes) error {
		PutHorizon(w, Horizon{Period: 1, Seq: 20, Batch: 4, Generation: 6})
		PutBaseAccount(w, 6, 1, BaseAccount{Account: account})
		PutBaseBalance(w, 6, StateKey{1, 1}, balance)
		PutBaseHold(w, 6, 15, goldenHold(rec))
		PutBaseOnce(w, 6, OnceKey{Key: [16]byte{1}}, Once{Seq: 3})
		PutBaseOnce(w, 6, OnceKey{Guard: true, Key: [16]byte{2}}, Once{Seq: 4})
		PutBaseAsset(w, 6, 1, BaseAsset{Seq: 5, Scale: Scale{Seq: 7, Decimals: 2}})
		PutBaseAsset(w, 6, 2, BaseAsset{Seq: 6})
		PutBaseAsset(w, 7, 3, BaseAsset{Seq: 6})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(fn func(w *store.Writes)) attempt {
		return func(_ store.Reader, w *store.Writes) error { fn(w); return nil }
	}
	return tx, []attempt{
		put(func(w *store.Writes) { PutAccount(w, 1, account) }),
		put(func(w *store.Writes) { PutBalance(w, StateKey{1, 1}, balance) }),
		put(func(w *store.Writes) { PutHold(w, 15, held) }),
		put(func(w *store.Writes) { PutOnce(w, OnceKey{Guard: true, Key: [16]byte{2}}, Once{Seq: 4}) }),
		put(func(w *store.Writes) { PutOnce(w, OnceKey{Key: [16]byte{1}}, Once{Seq: 3}) }),
		put(func(w *store.Writes) { PutScale(w, 1, Scale{Seq: 7, Decimals: 2}) }),
		put(func(*store.Writes) {}),
	}
}

func try(tx *storetest.Tx, c attempt) error {
	_, err := storetest.Do(tx, c)
	return err
}

// derivedRows returns the rows of the derived tables as text.
func derivedRows(r store.Reader) (all []string) {
	for _, b := range DerivedBuckets() {
		if b.Subs {
			continue
		}
		for k, v := range r.Range(b, nil, nil) {
			all = append(all, b.Name+string(k)+string(v))
		}
	}
	return all
}

// Each row of the base makes the row of a derived table that records would have made, and has a
// line of a period file that shows it.
func TestBaseRowsAreRestoredAndShown(t *testing.T) {
	tx, want := based(t)
	n := 0
	for row := range BaseOf(tx.Reader()).Rows() {
		got, wanted := storetest.NewTx(t, Buckets()...), storetest.NewTx(t, Buckets()...)
		err := try(got, func(_ store.Reader, w *store.Writes) error { return row.Restore(w) })
		if e := try(wanted, want[n]); err != nil || e != nil ||
			!slices.Equal(derivedRows(got.Reader()), derivedRows(wanted.Reader())) {
			t.Errorf("%c %x is restored as %q, %v", row.Kind, row.Key, derivedRows(got.Reader()), err)
		}
		name := ""
		if row.Kind == BaseOfAccount || row.Kind == BaseOfAsset {
			name = "ron"
		}
		l, err := row.Line(name)
		text := (&record.PeriodLine{Kind: record.LineBase, Base: l}).Append(nil)
		back, e := record.ParsePeriodLine(text)
		if again := BaseRowOf(&back.Base); err != nil || e != nil || again.Kind != row.Kind ||
			!bytes.Equal(again.Key, row.Key) || !bytes.Equal(again.Value, row.Value) {
			t.Errorf("%sreads as %+v, %v, %v", text, again, err, e)
		}
		n++
	}
	if n != len(want) {
		t.Errorf("the base has %d rows, want %d", n, len(want))
	}
	for _, bad := range []BaseRow{{}, {Kind: BaseOfAccount, Key: []byte{1}}, {Kind: BaseOfHold, Key: make([]byte, 8)}} {
		if try(tx, func(_ store.Reader, w *store.Writes) error { return bad.Restore(w) }) == nil {
			t.Errorf("%+v is restored", bad)
		}
	}
}

// A walk from a row on has that row and all after it, and only those of its generation.
func TestBaseRowsFrom(t *testing.T) {
	tx, _ := based(t)
	base := BaseOf(tx.Reader())
	rows := slices.Collect(base.Rows())
	for i, from := range rows {
		n := 0
		for row := range base.RowsFrom(from) {
			if want := rows[i+n]; row.Kind != want.Kind || !bytes.Equal(row.Key, want.Key) {
				t.Fatalf("from row %d: row %d is %c %x", i, n, row.Kind, row.Key)
			}
			n++
		}
		if n != len(rows)-i {
			t.Errorf("from row %d: %d rows", i, n)
		}
	}
	guards := 0
	for k := range base.Onces() {
		if k.Guard {
			guards++
		}
	}
	if guards != 1 {
		t.Errorf("a walk of permanent ids and guards has %d guards, want 1", guards)
	}
}

// A rebuild keeps names and references up to the horizon.
func TestKeptRows(t *testing.T) {
	tx, _ := based(t)
	err := try(tx, func(_ store.Reader, w *store.Writes) error {
		PutHorizon(w, Horizon{Period: 1, Seq: 20, Batch: 4, Generation: 6, Accounts: 2, Assets: 1})
		for ref := uint64(1); ref <= 3; ref++ {
			PutName(w, ref, "account"+string(rune('0'+ref)))
		}
		PutAsset(w, 1, "ron")
		PutAsset(w, 2, "usd")
		for seq := uint64(19); seq <= 21; seq++ {
			PutOnce(w, OnceKey{Guard: true, Key: [16]byte{byte(seq)}}, Once{Seq: seq})
		}
		PutOnce(w, OnceKey{Guard: true, Key: [16]byte{2}}, Once{Seq: 4})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := tx.Reader()
	h := GetHorizon(r)
	for b, want := range map[*store.Bucket]int{bRefs: 3, bOnce: 3} {
		kept, n := h.Kept(b), 0
		for k, v := range r.Range(b, nil, nil) {
			if kept(k, v) {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d rows are kept, want %d", b.Name, n, want)
		}
	}
	damaged := []byte("gxxxxxxxxxxxxxxxx")
	if h.Kept(bState) != nil || (&Horizon{}).Kept(bRefs) != nil || h.Kept(bOnce)(damaged, damaged) {
		t.Error("a row is kept that records make, or a damaged one")
	}
	want := []NameChange{{false, 2, "account2"}, {false, 3, "account3"}, {true, 1, "ron"}, {true, 2, "usd"}}
	if got := slices.Collect(Names(r, NameChange{Ref: 2})); !slices.Equal(got, want) {
		t.Errorf("names %v", got)
	}
	if got := slices.Collect(Names(r, NameChange{Asset: true, Ref: 2})); !slices.Equal(got, want[3:]) {
		t.Errorf("names %v", got)
	}
}
