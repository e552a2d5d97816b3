package registry

import (
	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// scratch is the state a batch's ops work on: the transaction, and over it what the batch itself has done, because a
// command does not see its own writes. A row that does not decode ends the command inside the table.
type scratch struct {
	r store.Reader
	w *store.Writes

	tree     *forest
	head     record.Head
	audit    AuditRef
	props    map[ulid.ULID]*storedProp // looked at or entered; nil: gone or never there
	approved []approvalKey             // recorded by this batch
}

func newScratch(r store.Reader, w *store.Writes) *scratch {
	s := &scratch{r: r, w: w, tree: newForest(r, w), props: map[ulid.ULID]*storedProp{}}
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

func (s *scratch) enter(id ulid.ULID, p storedProp) {
	s.props[id] = &p
	props.Put(s.w, id, p)
	propByB3.Put(s.w, p.row.PayloadB3, id)
	propExpiry.Put(s.w, expiry{uint64(p.row.ExpiresMS), id}, struct{}{})
}

// finish deletes a live proposal with its approvals, this batch's included, and keeps how it ended.
func (s *scratch) finish(id ulid.ULID, p *storedProp, how doneRow) {
	s.props[id] = nil
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
	doneOutcome.Put(s.w, id, how)
}
