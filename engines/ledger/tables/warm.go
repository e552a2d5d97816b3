package tables

import (
	"bytes"
	"slices"

	"ronbox/store"
)

// WarmStates has the disk read rows of ledger/state side by side.
func WarmStates(r store.Reader, keys []StateKey) {
	store.Warm(r, bState, sorted(stateKeys(), keys))
}

// WarmNames has the disk read the rows that Ref reads for names of accounts, side by side.
func WarmNames(r store.Reader, accounts []string) {
	store.Warm(r, bNames, sorted(accountNames(), accounts))
}

// WarmRecordsAt has the disk read single records side by side.
func WarmRecordsAt(r store.Reader, seqs []uint64) {
	store.Warm(r, bJournal, sorted(store.U64(), seqs))
}

// WarmRecords has the disk read the records from one seq up to, not including, another, side by side.
func WarmRecords(r store.Reader, from, to uint64) {
	store.WarmRange(r, bJournal, seqKey(from), seqKey(to))
}

// sorted writes keys in the order of their table, each once.
func sorted[K any](of store.Key[K], keys []K) [][]byte {
	raw := make([][]byte, len(keys))
	for i, k := range keys {
		raw[i] = of.Append(nil, k)
	}
	slices.SortFunc(raw, bytes.Compare)
	return slices.CompactFunc(raw, bytes.Equal)
}

// accountNames are the keys of ledger/names that accounts have.
func accountNames() store.Key[string] {
	return store.Key[string]{Append: func(dst []byte, name string) []byte { return nameKeys().Append(dst, nameKey{kindAccount, name}) }}
}
