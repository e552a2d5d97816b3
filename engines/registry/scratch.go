package registry

import (
	"slices"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// scratch is the state a batch's ops work on: the transaction, and over it what the batch itself has done, because a
// command does not see its own writes. A row that does not decode ends the command inside the table.
type scratch struct {
	r      store.Reader
	w      *store.Writes
	limits Limits

	tree     *forest
	head     headRow
	audit    AuditRef
	props    map[ulid.ULID]*storedProp // looked at or entered; nil: gone or never there
	twins    map[b3.Digest]ulid.ULID   // entered by this batch
	entered  []ulid.ULID               // in order
	approved []approvalKey             // recorded by this batch
	finished map[ulid.ULID]bool        // ended by this batch
	sums     *pendingSums              // nil until an op needs it
}

// pendingSums is what the limits look at.
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

// admits says which limit refuses one more payload, or "".
func (l Limits) admits(p *pendingSums, owner string, bytes int64) (limit string, bound int64) {
	switch {
	case p.count >= l.MaxPending:
		return "proposals.max_pending", int64(l.MaxPending)
	case p.byOwner[owner] >= l.MaxPerCap:
		return "proposals.max_per_cap", int64(l.MaxPerCap)
	case p.bytes+bytes > l.MaxBytes:
		return "proposals.max_bytes", l.MaxBytes
	}
	return "", 0
}

func newScratch(r store.Reader, w *store.Writes, limits Limits) *scratch {
	s := &scratch{
		r: r, w: w, limits: limits,
		tree: newForest(r, w), props: map[ulid.ULID]*storedProp{}, twins: map[b3.Digest]ulid.ULID{}, finished: map[ulid.ULID]bool{},
	}
	s.head, _ = metaHead.Get(r, keyHead)
	s.audit, _ = metaAudit.Get(r, keyAuditHead)
	return s
}

// prop gives the live proposal id, or nil.
func (s *scratch) prop(id ulid.ULID) *storedProp {
	if p, seen := s.props[id]; seen {
		return p
	}
	s.props[id] = nil
	if p, ok := props.Get(s.r, id); ok {
		s.props[id] = &p
	}
	return s.props[id]
}

// byPayload gives the live proposal of a payload, or nil.
func (s *scratch) byPayload(payload b3.Digest) *storedProp {
	if id, ok := s.twins[payload]; ok {
		return s.prop(id)
	}
	if id, ok := propByB3.Get(s.r, payload); ok {
		return s.prop(id)
	}
	return nil
}

// used says whether a proposal of that id lives or has lived.
func (s *scratch) used(id ulid.ULID) bool {
	return s.prop(id) != nil || s.finished[id] || doneOutcome.Has(s.r, id)
}

// hasApproved says whether the key has signed the proposal.
func (s *scratch) hasApproved(k approvalKey) bool {
	return slices.Contains(s.approved, k) || approvals.Has(s.r, k)
}

// pending sums up the live proposals, once; enter and remove keep the sums right after that.
func (s *scratch) pending() *pendingSums {
	if s.sums != nil {
		return s.sums
	}
	s.sums = &pendingSums{byOwner: map[string]int{}}
	for id, p := range propRows.All(s.r) {
		if now, seen := s.props[id]; !seen || now != nil { // else ended by this batch
			s.sums.add(p.row, 1)
		}
	}
	for _, id := range s.entered {
		if p := s.props[id]; p != nil {
			s.sums.add(p.row, 1)
		}
	}
	return s.sums
}

func (s *scratch) enter(id ulid.ULID, p storedProp) {
	s.pending().add(p.row, 1)
	s.props[id] = &p
	s.twins[p.row.PayloadB3] = id
	s.entered = append(s.entered, id)
	props.Put(s.w, id, p)
	propByB3.Put(s.w, p.row.PayloadB3, id)
	propExpiry.Put(s.w, expiry{uint64(p.row.ExpiresMS), id}, struct{}{})
}

// finish deletes a live proposal with its approvals, this batch's included, and keeps how it ended.
func (s *scratch) finish(id ulid.ULID, p *storedProp, how doneRow) {
	s.props[id] = nil
	delete(s.twins, p.row.PayloadB3)
	if s.sums != nil {
		s.sums.add(p.row, -1)
	}
	props.Delete(s.w, id)
	propByB3.Delete(s.w, p.row.PayloadB3)
	propExpiry.Delete(s.w, expiry{uint64(p.row.ExpiresMS), id})
	from, to := ofProposal(id)
	for k := range approvals.Range(s.r, from, to) {
		approvals.Delete(s.w, k)
	}
	for _, k := range s.approved {
		if k.id == id {
			approvals.Delete(s.w, k)
		}
	}
	s.done(id, how)
}

func (s *scratch) done(id ulid.ULID, how doneRow) {
	s.finished[id] = true
	doneOutcome.Put(s.w, id, how)
}
