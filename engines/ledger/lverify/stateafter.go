package lverify

import (
	"bytes"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// stateAfter follows what a base has and the chain does not: it makes the base after a period.
type stateAfter struct {
	accounts   []tables.BaseAccount // by ref, less 1
	assets     []tables.BaseAsset   // likewise
	onces      map[tables.OnceKey]tables.Once
	holds      map[uint64]*openHold
	references uint64

	leaves []b3.Digest   // of the batch under way
	made   []*openHold   // by the batch under way
	peaks  [][]*openHold // under each peak of the log, the largest first
	levels []int         // of the peaks of the log that the period begins with
}

// openHold is a hold with its place in the log, up to the peak over its batch.
type openHold struct {
	tables.BaseHold
	ended bool
}

// newStateAfter returns the state of nothing, in a log of batches.
func newStateAfter(batches uint64) stateAfter {
	s := stateAfter{onces: map[tables.OnceKey]tables.Once{}, holds: map[uint64]*openHold{}}
	for n := bits.Len64(batches) - 1; n >= 0; n-- {
		if batches&(1<<n) != 0 {
			s.levels = append(s.levels, n)
		}
	}
	s.peaks = make([][]*openHold, len(s.levels))
	return s
}

// had takes a hold of the base. The error is returned if the hold is in no batch of the log.
func (s *stateAfter) had(seq uint64, h tables.BaseHold) error {
	left := h.Header.No - 1
	for i, level := range s.levels {
		if left < 1<<level {
			hold := &openHold{BaseHold: h}
			s.holds[seq] = hold
			s.peaks[i] = append(s.peaks[i], hold)
			return nil
		}
		left -= 1 << level
	}
	return fmt.Errorf("hold %d is of batch %d, which is not closed", seq, h.Header.No)
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
		h := &openHold{}
		h.Record, h.Index = bytes.Clone(raw), uint64(len(s.leaves)-1)
		s.holds[r.Seq] = h
		s.made = append(s.made, h)
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

// batch ends a batch: its holds get their place in it, and the paths of open holds grow where the
// batch completes subtrees of the log, to which it is not added yet.
func (s *stateAfter) batch(log *frontier, b *record.Batch) {
	for _, h := range s.made {
		h.Header, h.Path = *b, merkle.Path(s.leaves, h.Index)
	}
	root := b.Root()
	d, right := merkle.Leaf(root[:]), s.made
	for i := range bits.TrailingZeros64(log.size + 1) {
		left, beside := s.peaks[len(s.peaks)-1], log.open[len(log.open)-1-i]
		right = append(grow(left, d), grow(right, beside)...)
		s.peaks = s.peaks[:len(s.peaks)-1]
		d = merkle.Node(beside, d)
	}
	s.peaks = append(s.peaks, right)
	s.leaves, s.made = s.leaves[:0], nil
}

// grow appends a digest to the paths of the holds that are open, and returns these.
func grow(holds []*openHold, beside b3.Digest) []*openHold {
	holds = slices.DeleteFunc(holds, func(h *openHold) bool { return h.ended })
	for _, h := range holds {
		h.LogPath = append(slices.Clip(h.LogPath), beside)
	}
	return holds
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
		hash.Add(tables.HoldRow(seq, s.holds[seq].BaseHold))
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.onces), compareOnces) {
		hash.Add(tables.OnceRow(k, s.onces[k]))
	}
	for i, a := range s.assets {
		hash.Add(tables.AssetRow(uint32(i+1), a))
	}
	return hash.Root()
}
