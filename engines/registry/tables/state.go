package tables

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// State is HEAD with the live proposals above it. A published state never changes: the pipeline
// works on a clone.
type State struct {
	View  *HeadView
	Live  map[ulid.ULID]*Proposal
	byB3  map[b3.Digest]ulid.ULID
	Sums  PendingSums
	Audit AuditRef
}

// Proposal is a live proposal. It is immutable; an approval makes a new one.
type Proposal struct {
	ID        ulid.ULID
	Row       PropRow
	Payload   *record.Payload
	Packed    []byte
	Approvals []record.Approval
	Keys      []b3.Digest // of their public keys, parallel to approvals
}

// Expired reports whether the time of p is over.
func (p *Proposal) Expired(now time.Time) bool { return now.UnixMilli() >= p.Row.ExpiresMS }

// ExpiresAt returns the end of the time of p as text.
func (p *Proposal) ExpiresAt() string { return record.FormatTime(time.UnixMilli(p.Row.ExpiresMS)) }

// Approved returns p with an approval added.
func (p *Proposal) Approved(a record.Approval, key b3.Digest) *Proposal {
	next := *p
	next.Approvals = append(slices.Clip(p.Approvals), a)
	next.Keys = append(slices.Clip(p.Keys), key)
	return &next
}

// NewState returns a state without proposals.
func NewState(view *HeadView) *State {
	return &State{
		View: view, Live: map[ulid.ULID]*Proposal{}, byB3: map[b3.Digest]ulid.ULID{},
		Sums: PendingSums{ByOwner: map[string]int{}},
	}
}

// Clone returns a copy of s that may be changed.
func (s *State) Clone() *State {
	next := *s
	next.Live, next.byB3, next.Sums.ByOwner = maps.Clone(s.Live), maps.Clone(s.byB3), maps.Clone(s.Sums.ByOwner)
	return &next
}

// Enter adds a proposal.
func (s *State) Enter(p *Proposal) {
	s.Live[p.ID] = p
	s.byB3[p.Row.PayloadB3] = p.ID
	s.Sums.add(p.Row, 1)
}

// Remove removes a proposal.
func (s *State) Remove(p *Proposal) {
	delete(s.Live, p.ID)
	delete(s.byB3, p.Row.PayloadB3)
	if s.Sums.add(p.Row, -1); s.Sums.ByOwner[p.Row.Owner] == 0 {
		delete(s.Sums.ByOwner, p.Row.Owner)
	}
}

// ByPayload returns the live proposal of a payload, or nil.
func (s *State) ByPayload(payload b3.Digest) *Proposal {
	id, ok := s.byB3[payload]
	if !ok {
		return nil
	}
	return s.Live[id]
}

// SameDraft returns the live proposal that differs from p, completed from draft, only in the time
// that the node filled in. It returns nil if there is no such proposal or if the draft names a
// time.
func (s *State) SameDraft(p *record.Payload, draft *record.Sketch) *Proposal {
	for _, twin := range s.Sorted() {
		q := twin.Payload
		if q.Version == p.Version && q.PrevHash == p.PrevHash && q.ItemsRoot == p.ItemsRoot &&
			draft.Repeats(p, q) {
			return twin
		}
	}
	return nil
}

// CheckBase checks the place of a payload: on HEAD, or on a live proposal for the version before
// it, which it returns (nil for HEAD).
func (s *State) CheckBase(version uint64, prev b3.Digest, maxStack int) (*Proposal, error) {
	next := s.View.Head.Version + 1
	switch {
	case version < next || version >= next+uint64(maxStack):
		return nil, record.ErrVersionSkew
	case version == next && prev == s.View.Head.PayloadB3:
		return nil, nil
	case version == next:
		return nil, record.ErrChainMismatch
	}
	base := s.ByPayload(prev)
	if base == nil || base.Row.Version != version-1 {
		return nil, record.ErrChainMismatch
	}
	return base, nil
}

// Bounded returns s with a HEAD that names the checkpoint and the first version kept. That version
// never decreases.
func (s *State) Bounded(first, size uint64) *State {
	first = max(first, s.View.MinVersion)
	if s.View.CheckpointSize == size && s.View.MinVersion == first {
		return s
	}
	next, view := *s, *s.View
	view.MinVersion, view.CheckpointSize = first, size
	next.View = NewHeadView(view)
	return &next
}

// Sorted returns the live proposals by id, hence by age.
func (s *State) Sorted() []*Proposal {
	return slices.SortedFunc(maps.Values(s.Live), func(a, b *Proposal) int { return a.ID.Compare(b.ID) })
}

// Orphans returns the live proposals that build neither on HEAD nor on a live proposal, parents
// before children.
func (s *State) Orphans() []*Proposal {
	byVersion := slices.SortedFunc(maps.Values(s.Live), func(a, b *Proposal) int {
		return cmp.Or(cmp.Compare(a.Row.Version, b.Row.Version), a.ID.Compare(b.ID))
	})
	var out []*Proposal
	sound := map[b3.Digest]uint64{s.View.Head.PayloadB3: s.View.Head.Version}
	for _, p := range byVersion {
		if version, ok := sound[p.Row.PrevHash]; ok && version == p.Row.Version-1 {
			sound[p.Row.PayloadB3] = p.Row.Version
		} else {
			out = append(out, p)
		}
	}
	return out
}

// Expired returns up to most expired proposals, oldest first.
func (s *State) Expired(now time.Time, most int) []*Proposal {
	var out []*Proposal
	for _, p := range s.Live {
		if p.Expired(now) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *Proposal) int {
		return cmp.Or(cmp.Compare(a.Row.ExpiresMS, b.Row.ExpiresMS), a.ID.Compare(b.ID))
	})
	return out[:min(len(out), most)]
}

// PendingSums sums the live proposals for the limits.
type PendingSums struct {
	Count   int
	Bytes   int64
	ByOwner map[string]int
}

func (p *PendingSums) add(row PropRow, n int) {
	p.Count += n
	p.Bytes += int64(n) * row.Bytes
	p.ByOwner[row.Owner] += n
}

// HeadView is HEAD with all values that follow from it. It is immutable.
type HeadView struct {
	Head        record.Head // Version 0: no genesis yet
	Origin      string
	Incarnation string // of the store
	Expiry      string // the payload's advice to consumers, "" for none
	MinVersion  uint64 // oldest version that is not pruned; 0 before genesis

	CheckpointSize   uint64 // of the latest checkpoint; 0 before the first
	Items            record.Items
	Signers          *record.SignerSet // in force; nil before genesis
	document.Encoded                   // of the head route

	GenesisB3 b3.Digest // payload_b3 of version 1
	SignersB3 b3.Digest // of Signers
}

// NewHeadView fills in the document.
func NewHeadView(v HeadView) *HeadView {
	v.Encoded = document.Encode(v.Doc())
	return &v
}

// Doc returns HEAD as a reader sees it.
func (v *HeadView) Doc() document.Head {
	return document.Head{
		Version:        v.Head.Version,
		PayloadB3:      v.Head.PayloadB3,
		CommittedAt:    v.Head.CommittedAt,
		Hash:           v.Head.Hash,
		Epoch:          v.Head.Epoch,
		Expiry:         v.Expiry,
		MinVersion:     v.MinVersion,
		CheckpointSize: v.CheckpointSize,
		Incarnation:    v.Incarnation,
	}
}

// Genesis returns the payload_b3 of version 1; zero before genesis.
func (v *HeadView) Genesis() b3.Digest { return v.GenesisB3 }

// Ref returns the reference that a batch on this HEAD carries.
func (v *HeadView) Ref() HeadRef { return RefOf(v.Head) }

// Base returns HEAD as the base of the next payload.
func (v *HeadView) Base() record.Base {
	return record.Base{
		Origin: v.Origin, Version: v.Head.Version, PayloadB3: v.Head.PayloadB3,
		Hash: v.Head.Hash, Items: v.Items, Signers: v.Signers,
	}
}

// Published is the state of the log as readers see it. Recover stores it and, after the sync of a
// command, the committer.
type Published struct {
	State  atomic.Pointer[State]             // nil before the engine is built
	Latest atomic.Pointer[checkpoint.Signed] // the latest checkpoint; nil before the first
	Tree   atomic.Pointer[TreeRow]
	Loaded atomic.Bool // Recover has ended
}

// Head returns HEAD as of the last synced commit, never nil. Before Recover it is an empty log.
func (p *Published) Head() *HeadView { return p.State.Load().View }

// Covered returns the size of the latest checkpoint, 0 before the first.
func (p *Published) Covered() uint64 {
	if s := p.Latest.Load(); s != nil {
		return s.Size
	}
	return 0
}
