package tables

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A row of ledger/recent overrides the row with the same key in ledger/state for readers of the
// file alone, until it is dropped. GetBalance and GetAccount read ledger/state only: a running
// ledger has the newer row in memory.
func TestRecentRows(t *testing.T) {
	at := func(seq uint64) Balance { return Balance{State: record.State{LastSeq: seq}, Postings: seq} }
	account := func(seq uint64) Account { return Account{Account: record.Account{OpenedSeq: 1}, LastSeq: seq} }
	both, alone := StateKey{2, 1}, StateKey{3, 1}
	tx := storetest.NewTx(t, Buckets()...)
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		PutBalance(w, both, at(5))
		PutAccount(w, both.Account, account(5))
		PutRecentBalance(w, both, at(7))
		PutRecentAccount(w, both.Account, account(8))
		PutRecentBalance(w, alone, at(6))
		PutRecentAccount(w, alone.Account, account(6))
	})
	stored := Stored{tx.Reader()}
	if stored.Balance(both) != at(7) || stored.Account(both.Account) != account(8) || stored.Balance(alone) != at(6) ||
		stored.Account(alone.Account) != account(6) {
		t.Error("the newer rows are not read")
	}
	b, _ := GetBalance(tx.Reader(), both.Account, both.Asset)
	a, _ := GetAccount(tx.Reader(), both.Account)
	if _, known := GetBalance(tx.Reader(), alone.Account, alone.Asset); known || b != at(5) || a != account(5) {
		t.Errorf("ledger/state says %v, %v, %v", b, a, known)
	}
	want := map[StateKey]Row{
		both: {
			Balance: at(7),
		},
		{both.Account, 0}:  {Account: account(8)},
		alone:              {Balance: at(6)},
		{alone.Account, 0}: {Account: account(6)},
	}
	got, last := map[StateKey]Row{}, StateKey{}
	for k, row := range Recents(tx.Reader(), nil) {
		if got[k] = row; !last.Less(k) {
			t.Errorf("%v comes after %v", k, last)
		}
		last = k
	}
	if !maps.Equal(got, want) {
		t.Errorf("they are %v", got)
	}
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		for k := range want {
			DropRecent(w, k)
		}
	})
	for k := range Recents(tx.Reader(), nil) {
		t.Errorf("%v is still there", k)
	}
	if stored.Balance(both) != at(5) || stored.Account(both.Account) != account(5) ||
		stored.Balance(alone) != (Balance{}) {
		t.Error("dropped rows are read")
	}
}

// Recents reports a row that does not decode to fault and continues with the next row. Without
// fault, the row ends the view with an error.
func TestRecentsPassOverFaults(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		for ref := range uint64(4) {
			PutRecentBalance(w, StateKey{ref + 1, 1}, Balance{Postings: ref + 1})
		}
		w.Put(bRecent, stateKeys().Append(nil, StateKey{2, 1}), []byte("damaged"))
		w.Put(bRecent, stateKeys().Append(nil, StateKey{4, 1}), nil)
	})
	var walked, faults []uint64
	fault := func(k StateKey, err error) {
		if faults = append(faults, k.Account); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%v: %v", k, err)
		}
	}
	for k, row := range Recents(tx.Reader(), fault) {
		if walked = append(walked, k.Account); row.Balance.Postings != k.Account {
			t.Errorf("%v is %+v", k, row)
		}
	}
	if !slices.Equal(walked, []uint64{1, 3}) || !slices.Equal(faults, []uint64{2, 4}) {
		t.Errorf("walked %v, told of %v", walked, faults)
	}
	_, err := storetest.Do(tx, write(func(r store.Reader, _ *store.Writes) {
		for range Recents(r, nil) {
		}
	}))
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("nobody is told: %v", err)
	}
}
