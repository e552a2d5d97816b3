package tables

import (
	"bytes"
	"slices"
	"testing"

	"ronbox/store"
	"ronbox/store/storetest"
)

// The keys to warm are sorted in the order of their rows, without duplicates.
func TestWarmedKeys(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	states, accounts, seqs := []StateKey{{1, 2}, {3, 4}, {1 << 40, 1}}, []string{"a", "alice", "b"}, []uint64{
		1,
		255,
		256,
	}
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		for i, k := range states {
			PutBalance(w, k, Balance{})
			PutName(w, uint64(i+1), accounts[i])
			w.Put(bJournal, seqKey(seqs[i]), []byte{1})
		}
	})
	for _, tt := range []struct {
		b   *store.Bucket
		got [][]byte
	}{
		{bState, sorted(stateKeys(), mixed(states))},
		{bNames, sorted(accountNames(), mixed(accounts))},
		{bJournal, sorted(store.U64(), mixed(seqs))},
	} {
		var want [][]byte
		for k := range tx.Reader().Range(tt.b, nil, nil) {
			want = append(want, bytes.Clone(k))
		}
		if !slices.EqualFunc(tt.got, want, bytes.Equal) {
			t.Errorf("%s: %x, want %x", tt.b.Name, tt.got, want)
		}
	}
	WarmStates(tx.Reader(), mixed(states)) // of a ledger in memory: nothing to do
	WarmNames(tx.Reader(), nil)
	WarmRecordsAt(tx.Reader(), mixed(seqs))
}

func mixed[K any](keys []K) []K {
	all := append(slices.Clone(keys), keys...)
	slices.Reverse(all)
	return all
}
