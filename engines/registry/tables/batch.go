package tables

import (
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Batch is the command of the pipeline. It carries steps that the pipeline has decided on a known
// HEAD and audit head, with all bytes and times. Every batch moves the audit head, so Apply only
// compares both heads, checks the guard of each step and writes. Steps stand or fall together.
type Batch struct {
	Head  HeadRef  // HEAD before the first step
	Audit AuditRef // audit head before the first step
	Steps []Step
}

// Step is an op with its canonical audit record, which is chained to the record before it. A step
// without an op only adds its record: a refusal.
type Step struct {
	Op    Op
	Audit []byte
}

// Op is a decided change of the registry.
type Op interface {
	// apply writes the change into s. It returns the name of the guard that does not hold, or "".
	apply(s *scratch) (guard string)
	// size returns about how many bytes apply writes.
	size() int
}

// HeadRef names a HEAD. The zero HeadRef is the empty log.
type HeadRef struct {
	Version uint64
	Hash    b3.Digest
}

// RefOf returns the reference to a HEAD.
func RefOf(h record.Head) HeadRef { return HeadRef{Version: h.Version, Hash: h.Hash} }

// AuditRef names the last record of the audit chain. The zero AuditRef is the empty chain.
type AuditRef struct {
	Seq uint64    `cbor:"1,keyasint"`
	B3  b3.Digest `cbor:"2,keyasint"`
}

// BatchResult is the result of Apply: both heads after the batch, and the tree.
type BatchResult struct {
	Head  HeadRef
	Audit AuditRef
	Tree  TreeRow
}

// GuardError is returned when a guard does not hold. Op is the index of the refused step, or -1 if
// the guard is the command's own. To a caller it is record.ErrChainMismatch: HEAD or a proposal has
// moved.
type GuardError struct {
	Op    int
	Guard string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("registry batch: op %d: guard %q does not hold", e.Op, e.Guard)
}

// Is reports whether target is record.ErrChainMismatch.
func (e *GuardError) Is(target error) bool { return target == record.ErrChainMismatch }

// Kind returns the stable name of the command.
func (Batch) Kind() string { return "registry.batch/1" }

// Size returns about how many bytes b writes.
func (b Batch) Size() int {
	n := 256
	for _, step := range b.Steps {
		n += step.Size()
	}
	return n
}

// Size returns about how many bytes step writes.
func (step Step) Size() int {
	n := 128 + len(step.Audit)
	if step.Op != nil {
		n += step.Op.size()
	}
	return n
}

// Apply checks and writes all steps, or returns a *GuardError and writes nothing. It uses only rows
// of r and the content of b.
func (b Batch) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (BatchResult, error) {
	s := newScratch(r, w)
	if RefOf(s.head) != b.Head {
		return BatchResult{}, &GuardError{Op: -1, Guard: "head"}
	}
	if s.audit != b.Audit {
		return BatchResult{}, &GuardError{Op: -1, Guard: "audit_head"}
	}
	for i, step := range b.Steps {
		if step.Op != nil {
			if guard := step.Op.apply(s); guard != "" {
				return BatchResult{}, &GuardError{Op: i, Guard: guard}
			}
		}
		s.audit = AuditRef{Seq: s.audit.Seq + 1, B3: b3.Sum(step.Audit)}
		Audits.Put(w, s.audit.Seq, step.Audit)
	}
	if RefOf(s.head) != b.Head {
		MetaHead.Put(w, KeyHead, s.head)
	}
	MetaAudit.Put(w, KeyAuditHead, s.audit)
	return BatchResult{Head: RefOf(s.head), Audit: s.audit, Tree: s.tree.row}, nil
}

// ProposeOp enters a proposal.
type ProposeOp struct {
	ID     ulid.ULID
	Row    PropRow
	Packed []byte // codec byte and payload
}

func (op ProposeOp) size() int { return len(op.Packed) + 128 }

func (op ProposeOp) apply(s *scratch) (guard string) {
	s.enter(op.ID, StoredProp{Row: op.Row, Packed: op.Packed})
	return ""
}

// ApproveOp records an approval of a live proposal. Key is the BLAKE3 of the 32 bytes of the public
// key.
type ApproveOp struct {
	ID       ulid.ULID
	Key      b3.Digest
	Approval []byte // canonical
}

func (op ApproveOp) size() int { return len(op.Approval) }

func (op ApproveOp) apply(s *scratch) (guard string) {
	if s.prop(op.ID) == nil {
		return "live"
	}
	key := approvalKey{ID: op.ID, key: op.Key}
	s.approved = append(s.approved, key)
	approvals.Put(s.w, key, op.Approval)
	return ""
}

// CommitOp appends a live proposal to the log as the next version.
type CommitOp struct{ Version NewVersion }

func (op CommitOp) size() int { return op.Version.size() }

func (op CommitOp) apply(s *scratch) (guard string) {
	v := &op.Version
	p := s.prop(v.ID)
	switch {
	case p == nil:
		return "live"
	case p.Row.PayloadB3 != v.PayloadB3 || p.Row.Version != v.Number || p.Row.PrevHash != v.PrevHash:
		return "payload"
	}
	if guard := s.append(v, p.Packed); guard != "" {
		return guard
	}
	s.finish(v.ID, p, v.Outcome())
	return ""
}

// GenesisOp begins an empty log with version 1.
type GenesisOp struct {
	Version NewVersion
	Packed  []byte // codec byte and payload
	Origin  string
}

func (op GenesisOp) size() int { return op.Version.size() + len(op.Packed) }

func (op GenesisOp) apply(s *scratch) (guard string) {
	v := &op.Version
	if s.head.Version != 0 || v.Number != 1 {
		return "log_is_empty"
	}
	if len(op.Packed) == 0 || len(v.Set) == 0 || op.Origin == "" || v.Epoch != 1 {
		return "genesis_complete"
	}
	s.begin(op.Origin, v.PayloadB3, 1)
	if guard := s.append(v, op.Packed); guard != "" {
		return guard
	}
	DoneOutcome.Put(s.w, v.ID, v.Outcome())
	return ""
}

// ReplayOp appends a version that this file has lost and that another copy of the log has kept.
type ReplayOp struct {
	Version NewVersion
	Packed  []byte // codec byte and payload
}

func (op ReplayOp) size() int { return op.Version.size() + len(op.Packed) }

func (op ReplayOp) apply(s *scratch) (guard string) {
	v := &op.Version
	if len(op.Packed) == 0 || s.head.Version == 0 {
		return "replay_complete"
	}
	if guard := s.append(v, op.Packed); guard != "" {
		return guard
	}
	if p := s.prop(v.ID); p != nil {
		s.finish(v.ID, p, v.Outcome())
	} else {
		DoneOutcome.Put(s.w, v.ID, v.Outcome())
	}
	return ""
}

// NewVersion is a version as an op appends it.
type NewVersion struct {
	ID          ulid.ULID // of its proposal
	Number      uint64
	Hash        b3.Digest // of Entry
	PayloadB3   b3.Digest
	PrevHash    b3.Digest // payload_b3 of the version before
	CommittedAt string
	Epoch       uint64
	Entry       []byte
	Set         []byte // canonical signer set that this version installs, nil for none
}

func (v *NewVersion) size() int { return len(v.Entry) + len(v.Set) }

// Head returns the HEAD after v.
func (v *NewVersion) Head() record.Head {
	return record.Head{
		Version: v.Number, Hash: v.Hash, PayloadB3: v.PayloadB3, CommittedAt: v.CommittedAt, Epoch: v.Epoch,
	}
}

// Outcome returns the outcome of the proposal. Its time is that of the entry, which outlives the
// audit record and may be later if the clock was set back.
func (v *NewVersion) Outcome() DoneRow {
	at, _ := record.ParseTime(v.CommittedAt)
	return DoneRow{
		State: document.StateCommitted, Version: v.Number, PayloadB3: v.PayloadB3, AtMS: at.UnixMilli(),
		CommittedAt: v.CommittedAt, Hash: v.Hash,
	}
}

// EndOp ends a live proposal without a version. State is withdrawn, expired or stale.
type EndOp struct {
	ID    ulid.ULID
	State string
	AtMS  int64
}

func (EndOp) size() int { return 0 }

func (op EndOp) apply(s *scratch) (guard string) {
	p := s.prop(op.ID)
	if p == nil {
		return "live"
	}
	s.finish(op.ID, p,
		DoneRow{State: op.State, Version: p.Row.Version, PayloadB3: p.Row.PayloadB3, AtMS: op.AtMS})
	return ""
}

// ForgetOp removes outcomes of proposals that ended without a version at OverMS or before.
type ForgetOp struct {
	IDs    []ulid.ULID
	OverMS int64
}

func (op ForgetOp) size() int { return len(op.IDs) * (len(ulid.ULID{}) + 1) }

func (op ForgetOp) apply(s *scratch) (guard string) {
	for _, id := range op.IDs {
		if how, known := DoneOutcome.Get(s.r, id); !known || how.State == document.StateCommitted ||
			how.AtMS > op.OverMS {
			return "outcome_over"
		}
		DoneOutcome.Delete(s.w, id)
	}
	return ""
}

// AdoptOp accepts the log of the incarnation as the newest one, if an incarnation is given. With
// Settle it marks the objections of witnesses as settled; without, it deletes them.
type AdoptOp struct {
	Incarnation string
	Settle      bool
}

func (AdoptOp) size() int { return 0 }

func (op AdoptOp) apply(s *scratch) (guard string) {
	if op.Incarnation != "" {
		MetaAdopted.Put(s.w, KeyAdopted, []byte(op.Incarnation))
		MetaRaw.Delete(s.w, KeyAdoptedOld)
		MetaRaw.Delete(s.w, KeyCheckpoint)
	}
	kept, known := MetaObjections.Get(s.r, KeyObjections)
	switch {
	case known && op.Settle:
		MetaObjections.Put(s.w, KeyObjections, *kept.Settled(s.head.Version))
	case known:
		MetaObjections.Delete(s.w, KeyObjections)
	}
	return ""
}

// scratch is the state that the ops of a batch work on: the transaction, and an overlay with the
// writes of the batch itself, because a command does not see its own writes. A row that does not
// decode ends the command with a panic of its table.
type scratch struct {
	r store.Reader
	w *store.Writes

	tree     *forest
	head     record.Head
	audit    AuditRef
	props    map[ulid.ULID]*StoredProp // entered by this batch; nil: ended by it
	approved []approvalKey             // recorded by this batch
}

func newScratch(r store.Reader, w *store.Writes) *scratch {
	s := &scratch{r: r, w: w, tree: newForest(r, w), props: map[ulid.ULID]*StoredProp{}}
	s.head, _ = MetaHead.Get(r, KeyHead)
	s.audit, _ = MetaAudit.Get(r, KeyAuditHead)
	return s
}

// append writes a version on top of HEAD.
func (s *scratch) append(v *NewVersion, packed []byte) (guard string) {
	switch {
	case v.Number != s.head.Version+1 || v.PrevHash != s.head.PayloadB3:
		return "head"
	case len(v.Entry) > record.MaxEntry || v.Hash != b3.Sum(v.Entry):
		return "entry"
	case v.CommittedAt < s.head.CommittedAt:
		return "time"
	}
	if s.tree.row.Size != s.head.Version || s.tree.grow(v.Entry, packed) != nil {
		return "tree"
	}
	Entries.Put(s.w, v.Number, v.Entry)
	Payloads.Put(s.w, v.Number, packed)
	if len(v.Set) > 0 {
		Epochs.Put(s.w, uint32(v.Epoch), EpochSet{Version: v.Number, Set: v.Set})
	}
	s.head = v.Head()
	return ""
}

// prop returns the live proposal id, or nil.
func (s *scratch) prop(id ulid.ULID) *StoredProp {
	if p, seen := s.props[id]; seen {
		return p
	}
	if p, ok := props.Get(s.r, id); ok {
		return &p
	}
	return nil
}

func (s *scratch) enter(id ulid.ULID, p StoredProp) {
	s.props[id] = &p
	props.Put(s.w, id, p)
	propExpiry.Put(s.w, Expiry{uint64(p.Row.ExpiresMS), id}, struct{}{})
}

// finish deletes a live proposal with all its approvals, and stores its outcome.
func (s *scratch) finish(id ulid.ULID, p *StoredProp, how DoneRow) {
	s.props[id] = nil
	props.Delete(s.w, id)
	propExpiry.Delete(s.w, Expiry{uint64(p.Row.ExpiresMS), id})
	from, to := ofProposal(id)
	for k := range approvals.Range(s.r, from, to) {
		approvals.Delete(s.w, k)
	}
	for _, k := range s.approved {
		if k.ID == id {
			approvals.Delete(s.w, k)
		}
	}
	DoneOutcome.Put(s.w, id, how)
}
