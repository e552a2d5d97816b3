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
	s := newScratch(r, w, b.Limits)
	if s.head.ref() != b.Head {
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
	if s.head.ref() != b.Head {
		metaHead.Put(w, keyHead, s.head)
	}
	metaAudit.Put(w, keyAuditHead, s.audit)
	s.tree.write()
	return BatchResult{Head: s.head.ref(), Audit: s.audit, Tree: s.tree.row}, nil
}

// apply does one op. It answers the guard that does not hold by name, or "".
func (s *scratch) apply(op *Op) (guard string) {
	switch {
	case op.Do == OpGenesis && op.Commit != nil:
		return s.genesis(op.ID, op.Commit)
	case op.Do == OpPropose && op.Propose != nil:
		return s.propose(op.ID, op.Propose)
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
		metaRaw.Put(s.w, keyAdopted, []byte(op.Adopt))
		metaRaw.Delete(s.w, keyCheckpoint)
		return ""
	case op.Do == OpReject:
		return ""
	}
	return "op"
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
	s.done(id, c.outcome())
	return ""
}

func (s *scratch) propose(id ulid.ULID, p *ProposeOp) (guard string) {
	if s.used(id) || s.byPayload(p.PayloadB3) != nil {
		return "id_unused"
	}
	if guard := s.baseLives(p); guard != "" {
		return guard
	}
	if limit, _ := s.limits.admits(s.pending(), p.Owner, p.Bytes); limit != "" {
		return limit
	}
	s.enter(id, storedProp{packed: p.Packed, row: propRow{
		Version: p.Version, PayloadB3: p.PayloadB3, PrevHash: p.PrevHash, Owner: p.Owner,
		CreatedMS: p.CreatedMS, ExpiresMS: p.ExpiresMS, Bytes: p.Bytes,
	}})
	return ""
}

// baseLives: the proposal builds on HEAD, or on a live proposal for the version before it.
func (s *scratch) baseLives(p *ProposeOp) (guard string) {
	switch next := s.head.Version + 1; {
	case p.Version < next || p.Version >= next+uint64(s.limits.MaxStack):
		return "version"
	case p.Version == next && p.PrevHash == s.head.PayloadB3:
		return ""
	case p.Version == next:
		return "base_live"
	}
	if base := s.byPayload(p.PrevHash); base == nil || base.row.Version != p.Version-1 {
		return "base_live"
	}
	return ""
}

func (s *scratch) approve(id ulid.ULID, a *ApproveOp) (guard string) {
	p, key := s.prop(id), approvalKey{id: id, key: a.Key}
	switch {
	case p == nil:
		return "live"
	case a.AtMS >= p.row.ExpiresMS:
		return "unexpired"
	case s.hasApproved(key):
		return "key_absent"
	}
	s.approved = append(s.approved, key)
	approvals.Put(s.w, key, a.Approval)
	return ""
}

func (s *scratch) commit(id ulid.ULID, c *CommitOp) (guard string) {
	p := s.prop(id)
	switch {
	case p == nil || doneOutcome.Has(s.r, id):
		return "live"
	case c.AtMS >= p.row.ExpiresMS:
		return "unexpired"
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
		s.done(id, c.outcome())
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
	s.head = headRow{Version: c.Version, Hash: c.Hash, PayloadB3: c.PayloadB3, CommittedAt: c.CommittedAt, Epoch: c.Epoch}
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
		if how.State = StateWithdrawn; op.End.Owner != p.row.Owner {
			return "owner"
		}
	case OpExpire:
		if how.State = StateExpired; op.End.AtMS < p.row.ExpiresMS {
			return "expired"
		}
	}
	s.finish(op.ID, p, how)
	return ""
}
