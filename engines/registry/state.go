package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// state is HEAD with the live proposals above it. A published state never changes: the pipeline
// works on a clone.
type state struct {
	view  *HeadView
	live  map[ulid.ULID]*proposal
	byB3  map[b3.Digest]ulid.ULID
	sums  pendingSums
	audit AuditRef
}

// proposal is a live proposal. It is immutable; an approval makes a new one.
type proposal struct {
	id        ulid.ULID
	row       propRow
	payload   *record.Payload
	packed    []byte
	approvals []record.Approval
	keys      []b3.Digest // of their public keys, parallel to approvals
}

func (p *proposal) expired(now time.Time) bool { return now.UnixMilli() >= p.row.ExpiresMS }

func (p *proposal) expiresAt() string { return record.FormatTime(time.UnixMilli(p.row.ExpiresMS)) }

// approved returns p with an approval added.
func (p *proposal) approved(a record.Approval, key b3.Digest) *proposal {
	next := *p
	next.approvals = append(slices.Clip(p.approvals), a)
	next.keys = append(slices.Clip(p.keys), key)
	return &next
}

func newState(view *HeadView) *state {
	return &state{
		view: view, live: map[ulid.ULID]*proposal{}, byB3: map[b3.Digest]ulid.ULID{},
		sums: pendingSums{byOwner: map[string]int{}},
	}
}

func (s *state) clone() *state {
	next := *s
	next.live, next.byB3, next.sums.byOwner = maps.Clone(s.live), maps.Clone(s.byB3), maps.Clone(s.sums.byOwner)
	return &next
}

func (s *state) enter(p *proposal) {
	s.live[p.id] = p
	s.byB3[p.row.PayloadB3] = p.id
	s.sums.add(p.row, 1)
}

func (s *state) remove(p *proposal) {
	delete(s.live, p.id)
	delete(s.byB3, p.row.PayloadB3)
	if s.sums.add(p.row, -1); s.sums.byOwner[p.row.Owner] == 0 {
		delete(s.sums.byOwner, p.row.Owner)
	}
}

// byPayload returns the live proposal of a payload, or nil.
func (s *state) byPayload(payload b3.Digest) *proposal {
	id, ok := s.byB3[payload]
	if !ok {
		return nil
	}
	return s.live[id]
}

// sameDraft returns the live proposal that differs from p, completed from draft, only in the time
// that the node filled in. It returns nil if there is no such proposal or if the draft names a
// time.
func (s *state) sameDraft(p *record.Payload, draft *record.Sketch) *proposal {
	for _, twin := range s.sorted() {
		q := twin.payload
		if q.Version == p.Version && q.PrevHash == p.PrevHash && q.ItemsRoot == p.ItemsRoot &&
			draft.Repeats(p, q) {
			return twin
		}
	}
	return nil
}

// checkBase checks the place of a payload: on HEAD, or on a live proposal for the version before
// it, which it returns (nil for HEAD).
func (s *state) checkBase(version uint64, prev b3.Digest, maxStack int) (*proposal, error) {
	next := s.view.Head.Version + 1
	switch {
	case version < next || version >= next+uint64(maxStack):
		return nil, record.ErrVersionSkew
	case version == next && prev == s.view.Head.PayloadB3:
		return nil, nil
	case version == next:
		return nil, record.ErrChainMismatch
	}
	base := s.byPayload(prev)
	if base == nil || base.row.Version != version-1 {
		return nil, record.ErrChainMismatch
	}
	return base, nil
}

// sorted returns the live proposals by id, hence by age.
func (s *state) sorted() []*proposal {
	return slices.SortedFunc(maps.Values(s.live), func(a, b *proposal) int { return a.id.Compare(b.id) })
}

// orphans returns the live proposals that build neither on HEAD nor on a live proposal, parents
// before children.
func (s *state) orphans() []*proposal {
	byVersion := slices.SortedFunc(maps.Values(s.live), func(a, b *proposal) int {
		return cmp.Or(cmp.Compare(a.row.Version, b.row.Version), a.id.Compare(b.id))
	})
	var out []*proposal
	sound := map[b3.Digest]uint64{s.view.Head.PayloadB3: s.view.Head.Version}
	for _, p := range byVersion {
		if version, ok := sound[p.row.PrevHash]; ok && version == p.row.Version-1 {
			sound[p.row.PayloadB3] = p.row.Version
		} else {
			out = append(out, p)
		}
	}
	return out
}

// expired returns up to most expired proposals, oldest first.
func (s *state) expired(now time.Time, most int) []*proposal {
	var out []*proposal
	for _, p := range s.live {
		if p.expired(now) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *proposal) int {
		return cmp.Or(cmp.Compare(a.row.ExpiresMS, b.row.ExpiresMS), a.id.Compare(b.id))
	})
	return out[:min(len(out), most)]
}

// pendingSums sums the live proposals for the limits.
type pendingSums struct {
	count   int
	bytes   int64
	byOwner map[string]int
}

func (p *pendingSums) add(row propRow, n int) {
	p.count += n
	p.bytes += int64(n) * row.Bytes
	p.byOwner[row.Owner] += n
}

// admits returns a *PendingLimitError if another payload exceeds a limit.
func (l ProposalsConfig) admits(p *pendingSums, row propRow) error {
	switch {
	case p.count >= l.MaxPending:
		return &PendingLimitError{Limit: "proposals.max_pending", Max: int64(l.MaxPending)}
	case p.byOwner[row.Owner] >= l.MaxPerCap:
		return &PendingLimitError{Limit: "proposals.max_per_cap", Max: int64(l.MaxPerCap)}
	case p.bytes+row.Bytes > l.MaxBytes.Bytes():
		return &PendingLimitError{Limit: "proposals.max_bytes", Max: l.MaxBytes.Bytes()}
	}
	return nil
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

	genesis   b3.Digest // payload_b3 of version 1
	signersB3 b3.Digest // of Signers
}

// newHeadView fills in the document.
func newHeadView(v HeadView) *HeadView {
	v.Encoded = document.Encode(v.Doc())
	return &v
}

// Doc returns HEAD as a reader sees it.
func (v *HeadView) Doc() Head {
	return Head{
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
func (v *HeadView) Genesis() b3.Digest { return v.genesis }

// ref returns the reference that a batch on this HEAD carries.
func (v *HeadView) ref() HeadRef { return refOf(v.Head) }

// base returns HEAD as the base of the next payload.
func (v *HeadView) base() record.Base {
	return record.Base{
		Origin: v.Origin, Version: v.Head.Version, PayloadB3: v.Head.PayloadB3,
		Hash: v.Head.Hash, Items: v.Items, Signers: v.Signers,
	}
}
