package lverify

import (
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// stateAfter follows what a base has and the chain does not: it makes the base after a period.
type stateAfter struct {
	places
	accounts   []tables.BaseAccount // by ref, less 1
	assets     []tables.BaseAsset   // likewise
	onces      map[tables.OnceKey]tables.Once
	holds      map[uint64]*placed // that are open, by seq
	references uint64
}

// newStateAfter returns the state of nothing, in a log of batches.
func newStateAfter(batches uint64) stateAfter {
	return stateAfter{
		places: newPlaces(batches), onces: map[tables.OnceKey]tables.Once{}, holds: map[uint64]*placed{},
	}
}

// take adds what a record changes. The chain has found it good.
func (s *stateAfter) take(r *record.Record, raw []byte) {
	s.leaves = append(s.leaves, merkle.Leaf(raw))
	if r.Op == record.OpOpen {
		s.accounts = append(s.accounts, tables.BaseAccount{OpenedAt: r.At})
	}
	if n := uint64(len(s.accounts)); tables.ChangesAccount(r) && r.From != 0 && r.From <= n {
		a := &s.accounts[r.From-1]
		a.Account, _ = a.Account.After(r)
		if r.Nonce != 0 {
			a.LastTx = r.TxID()
		}
	}
	if r.Op.MovesMoney() && r.Guard != (record.Guard{}) {
		s.references++
	}
	switch r.Op {
	case record.OpAsset:
		s.assets = append(s.assets, tables.BaseAsset{Seq: r.Seq, DeclaredAt: r.At})
	case record.OpScale:
		if n := uint32(len(s.assets)); r.Asset != 0 && r.Asset <= n {
			s.assets[r.Asset-1].Scale = tables.Scale{Seq: r.Seq, Decimals: r.Decimals()}
		}
	case record.OpHold:
		s.holds[r.Seq] = s.keep(raw)
	case record.OpCapture, record.OpRelease, record.OpExpire:
		if h := s.holds[r.Hold]; h != nil {
			h.ended = true
			delete(s.holds, r.Hold)
		}
	case record.OpOnce:
		s.once(r)
	}
}

// once keeps a permanent id, and its guard unless an earlier one has bound it.
func (s *stateAfter) once(r *record.Record) {
	if repeats(r) {
		return
	}
	s.onces[tables.OnceKey{Key: r.Dedupe.Key}] = tables.Once{Seq: r.Seq, Digest: r.Dedupe.Fingerprint}
	guard := tables.OnceKey{Guard: true, Key: r.Guard.Key}
	if _, bound := s.onces[guard]; r.Guard != (record.Guard{}) && !bound {
		owner := tables.Once{Seq: r.Seq}
		copy(owner.Digest[:], r.Guard.Owner[:])
		s.onces[guard] = owner
	}
}

// root returns the root of the state.
func (s *stateAfter) root(balances map[tables.StateKey]tables.Balance) b3.Digest {
	hash := tables.NewStateHash()
	for i, a := range s.accounts {
		hash.Add(tables.AccountRow(uint64(i+1), a))
	}
	for _, k := range slices.SortedFunc(maps.Keys(balances), compareStates) {
		hash.Add(tables.BalanceRow(k, balances[k]))
	}
	for _, seq := range slices.Sorted(maps.Keys(s.holds)) {
		hash.Add(tables.HoldRow(seq, tables.BaseHold{Inclusion: s.holds[seq].Inclusion}))
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.onces), compareOnces) {
		hash.Add(tables.OnceRow(k, s.onces[k]))
	}
	for i, a := range s.assets {
		hash.Add(tables.AssetRow(uint32(i+1), a))
	}
	return hash.Root()
}
