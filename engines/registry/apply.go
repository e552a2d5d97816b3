package registry

import (
	"bytes"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Apply guards and writes all ops, or refuses the batch with a *GuardError and writes nothing. It uses only what it reads
// and what b carries.
func (b Batch) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (BatchResult, error) {
	s := newScratch(r, w)
	if refOf(s.head) != b.Head {
		return BatchResult{}, &GuardError{Op: -1, Guard: "head"}
	}
	if s.audit != b.Audit {
		return BatchResult{}, &GuardError{Op: -1, Guard: "audit_head"}
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		if guard := s.apply(op); guard != "" {
			return BatchResult{}, &GuardError{Op: i, Guard: guard}
		}
		s.audit = AuditRef{Seq: s.audit.Seq + 1, B3: b3.Sum(op.Audit)}
		audits.Put(w, s.audit.Seq, op.Audit)
	}
	if refOf(s.head) != b.Head {
		metaHead.Put(w, keyHead, s.head)
	}
	metaAudit.Put(w, keyAuditHead, s.audit)
	return BatchResult{Head: refOf(s.head), Audit: s.audit, Tree: s.tree.row}, nil
}

// apply does one op. It answers the guard that does not hold by name, or "".
func (s *scratch) apply(op *Op) (guard string) {
	switch {
	case op.Do == OpGenesis && op.Commit != nil:
		return s.genesis(op.ID, op.Commit)
	case op.Do == OpPropose && op.Propose != nil:
		s.enter(op.ID, storedProp{row: op.Propose.propRow, packed: op.Propose.Packed})
		return ""
	case op.Do == OpApprove && op.Approve != nil:
		return s.approve(op.ID, op.Approve)
	case op.Do == OpCommit && op.Commit != nil:
		return s.commit(op.ID, op.Commit)
	case (op.Do == OpWithdraw || op.Do == OpExpire || op.Do == OpStale) && op.End != nil:
		return s.end(op)
	case op.Do == OpForget && op.Forget != nil:
		return s.forget(op.Forget)
	case op.Do == OpReplay && op.Commit != nil:
		return s.replay(op.ID, op.Commit)
	case op.Do == OpAdopt && op.Adopt != "":
		s.adopt(op)
		return ""
	case op.Do == OpReject:
		return ""
	}
	return "op"
}

// adopt takes the log of this incarnation for the newest.
func (s *scratch) adopt(op *Op) {
	metaAdopted.Put(s.w, keyAdopted, []byte(op.Adopt))
	metaRaw.Delete(s.w, keyAdoptedOld)
	metaRaw.Delete(s.w, keyCheckpoint)
	kept, known := metaObjections.Get(s.r, keyObjections)
	switch {
	case known && op.Settle:
		metaObjections.Put(s.w, keyObjections, *kept.settled())
	case known:
		metaObjections.Delete(s.w, keyObjections)
	}
}

func (s *scratch) genesis(id ulid.ULID, c *CommitOp) (guard string) {
	if s.head.Version != 0 || c.Version != 1 {
		return "log_is_empty"
	}
	if len(c.Packed) == 0 || len(c.Set) == 0 || c.Origin == "" || c.Epoch != 1 {
		return "genesis_complete"
	}
	metaRaw.Put(s.w, keyOrigin, []byte(c.Origin))
	metaRaw.Put(s.w, keyGenesis, bytes.Clone(c.PayloadB3[:]))
	metaRaw.Put(s.w, keySchema, []byte(schemaVersion))
	metaNumber.Put(s.w, keyMin, 1)
	if guard := s.append(c, c.Packed); guard != "" {
		return guard
	}
	doneOutcome.Put(s.w, id, c.outcome())
	return ""
}

func (s *scratch) approve(id ulid.ULID, a *ApproveOp) (guard string) {
	key := approvalKey{id: id, key: a.Key}
	if s.prop(id) == nil {
		return "live"
	}
	s.approved = append(s.approved, key)
	approvals.Put(s.w, key, a.Approval)
	return ""
}

func (s *scratch) commit(id ulid.ULID, c *CommitOp) (guard string) {
	p := s.prop(id)
	switch {
	case p == nil:
		return "live"
	case p.row.PayloadB3 != c.PayloadB3 || p.row.Version != c.Version || p.row.PrevHash != c.PrevHash:
		return "payload"
	}
	if guard := s.append(c, p.packed); guard != "" {
		return guard
	}
	s.finish(id, p, c.outcome())
	return ""
}

// replay appends a version that this log has lost and another copy of it has kept.
func (s *scratch) replay(id ulid.ULID, c *CommitOp) (guard string) {
	if len(c.Packed) == 0 || s.head.Version == 0 {
		return "replay_complete"
	}
	if guard := s.append(c, c.Packed); guard != "" {
		return guard
	}
	if p := s.prop(id); p != nil {
		s.finish(id, p, c.outcome())
	} else {
		doneOutcome.Put(s.w, id, c.outcome())
	}
	return ""
}

// append writes a version on top of HEAD.
func (s *scratch) append(c *CommitOp, packed []byte) (guard string) {
	switch {
	case c.Version != s.head.Version+1 || c.PrevHash != s.head.PayloadB3:
		return "head"
	case len(c.Entry) > record.MaxEntry || c.Hash != b3.Sum(c.Entry):
		return "entry"
	case c.CommittedAt < s.head.CommittedAt:
		return "time"
	}
	if s.tree.row.Size == s.head.Version && s.tree.grow(c.Entry, packed) != nil {
		return "tree"
	}
	entries.Put(s.w, c.Version, c.Entry)
	payloads.Put(s.w, c.Version, packed)
	if len(c.Set) > 0 {
		epochs.Put(s.w, uint32(c.Epoch), epochSet{version: c.Version, set: c.Set})
	}
	s.head = record.Head{Version: c.Version, Hash: c.Hash, PayloadB3: c.PayloadB3, CommittedAt: c.CommittedAt, Epoch: c.Epoch}
	return ""
}

// end closes a proposal without a version.
func (s *scratch) end(op *Op) (guard string) {
	p := s.prop(op.ID)
	if p == nil {
		return "live"
	}
	how := doneRow{State: StateStale, Version: p.row.Version, PayloadB3: p.row.PayloadB3, AtMS: op.End.AtMS}
	switch op.Do {
	case OpWithdraw:
		how.State = StateWithdrawn
	case OpExpire:
		how.State = StateExpired
	}
	s.finish(op.ID, p, how)
	return ""
}

// scratch is the state a batch's ops work on: the transaction, and over it what the batch itself has done, because a
// command does not see its own writes. A row that does not decode ends the command inside the table.
type scratch struct {
	r store.Reader
	w *store.Writes

	tree     *forest
	head     record.Head
	audit    AuditRef
	props    map[ulid.ULID]*storedProp // entered by this batch, or nil: ended by it
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
	if p, ok := props.Get(s.r, id); ok {
		return &p
	}
	return nil
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
