package tables

import (
	"cmp"
	"slices"
	"strings"

	"ronbox/store"
)

// WarmStates has the disk read rows of ledger/state side by side. It puts the keys in order.
func WarmStates(r store.Reader, keys []StateKey) {
	store.Warm(r, bState, sorted(stateKeys(), keys, compareStates))
}

// WarmNames has the disk read the rows that Ref reads for names of accounts, side by side. It puts the names in order.
func WarmNames(r store.Reader, accounts []string) {
	store.Warm(r, bNames, sorted(accountNames(), accounts, strings.Compare))
}

// WarmRecordsAt has the disk read single records side by side. It puts the seqs in order.
func WarmRecordsAt(r store.Reader, seqs []uint64) {
	store.Warm(r, bJournal, sorted(store.U64(), seqs, cmp.Compare))
}

// WarmRecords has the disk read the records from one seq up to, not including, another, side by side.
func WarmRecords(r store.Reader, from, to uint64) {
	store.WarmRange(r, bJournal, seqKey(from), seqKey(to))
}

// sorted puts keys in the order that their kind has, and writes each once.
func sorted[K comparable](of store.Key[K], keys []K, compare func(a, b K) int) [][]byte {
	slices.SortFunc(keys, compare)
	raw := make([][]byte, 0, len(keys))
	for i, k := range keys {
		if i == 0 || k != keys[i-1] {
			raw = append(raw, of.Append(nil, k))
		}
	}
	return raw
}

// accountNames are the keys of ledger/names that accounts have.
func accountNames() store.Key[string] {
	return store.Key[string]{Append: func(dst []byte, name string) []byte { return nameKeys().Append(dst, nameKey{kindAccount, name}) }}
}

func compareStates(a, b StateKey) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Asset, b.Asset))
}
