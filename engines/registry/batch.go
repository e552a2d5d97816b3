package registry

import (
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// Batch is the registry's one command: ops decided by the pipeline on the HEAD and audit head it names, all bytes and
// times included. Every batch moves the audit head, so the state that they were decided on is still the file's when Apply
// finds both heads: it only guards and writes. Ops stand or fall together.
type Batch struct {
	Head  HeadRef  `cbor:"1,keyasint"` // HEAD that Ops[0] builds on
	Audit AuditRef `cbor:"2,keyasint"` // audit head that Ops[0] is chained to
	Ops   []Op     `cbor:"4,keyasint"`
}

// HeadRef names a HEAD; the zero HeadRef is the empty log.
type HeadRef struct {
	Version uint64    `cbor:"1,keyasint"`
	Hash    b3.Digest `cbor:"2,keyasint"`
}

func refOf(h record.Head) HeadRef { return HeadRef{Version: h.Version, Hash: h.Hash} }

// AuditRef names the last record of the audit chain; the zero AuditRef is the empty chain.
type AuditRef struct {
	Seq uint64    `cbor:"1,keyasint"`
	B3  b3.Digest `cbor:"2,keyasint"`
}

// OpKind says what an Op does.
type OpKind uint8

// The kinds. Their numbers are stored and never reused.
const (
	OpGenesis OpKind = iota + 1
	OpPropose
	OpApprove
	OpCommit
	OpWithdraw
	OpExpire
	OpStale
	OpReject // a refusal, kept in the audit chain only
	OpForget // outcomes whose time is over
	OpReplay // a version that another copy of the log has kept
	OpAdopt  // an operator takes the log for the newest
)

// Op is one decided step. Audit is its record, canonical and chained to the op before it. Which of the other members
// are set follows from Do.
type Op struct {
	Do      OpKind     `cbor:"1,keyasint"`
	Audit   []byte     `cbor:"2,keyasint"`
	ID      ulid.ULID  `cbor:"3,keyasint"`            // proposal; all but Reject and Forget
	Propose *ProposeOp `cbor:"4,keyasint,omitempty"`  // Propose
	Approve *ApproveOp `cbor:"5,keyasint,omitempty"`  // Approve
	Commit  *CommitOp  `cbor:"6,keyasint,omitempty"`  // Commit, Genesis, Replay
	End     *EndOp     `cbor:"7,keyasint,omitempty"`  // Withdraw, Expire, Stale
	Forget  *ForgetOp  `cbor:"8,keyasint,omitempty"`  // Forget
	Adopt   string     `cbor:"9,keyasint,omitempty"`  // Adopt: the store's incarnation
	Settle  bool       `cbor:"10,keyasint,omitempty"` // Adopt: the objections of witnesses are settled; else they are void
}

// ProposeOp enters a proposal.
type ProposeOp struct {
	propRow
	Packed []byte `cbor:"8,keyasint"` // codec byte and payload
}

// ApproveOp records a signature. Key is the BLAKE3 of the public key's 32 bytes.
type ApproveOp struct {
	Key      b3.Digest `cbor:"1,keyasint"`
	Approval []byte    `cbor:"2,keyasint"`
}

// CommitOp appends a version. Packed is genesis's and a replay's alone, Origin genesis's: any other payload is in reg/prop already.
type CommitOp struct {
	Version     uint64    `cbor:"1,keyasint"`
	Hash        b3.Digest `cbor:"2,keyasint"` // of Entry
	PayloadB3   b3.Digest `cbor:"3,keyasint"`
	PrevHash    b3.Digest `cbor:"4,keyasint"` // payload_b3 of the version before
	CommittedAt string    `cbor:"5,keyasint"`
	Epoch       uint64    `cbor:"6,keyasint"`
	Entry       []byte    `cbor:"8,keyasint"`
	Packed      []byte    `cbor:"9,keyasint,omitempty"`
	Set         []byte    `cbor:"10,keyasint,omitempty"` // canonical signer set that this version installs
	Origin      string    `cbor:"11,keyasint,omitempty"`
}

// outcome has the time that the entry has, which outlives the audit record and may be later on a clock that was set back.
func (c *CommitOp) outcome() doneRow {
	at, _ := record.ParseTime(c.CommittedAt)
	return doneRow{State: StateCommitted, Version: c.Version, PayloadB3: c.PayloadB3, AtMS: at.UnixMilli(), CommittedAt: c.CommittedAt, Hash: c.Hash}
}

// EndOp ends a proposal without a version.
type EndOp struct {
	AtMS int64 `cbor:"2,keyasint"`
}

// ForgetOp removes outcomes of proposals that ended at OverMS or before, none of them with a version.
type ForgetOp struct {
	IDs    []ulid.ULID `cbor:"1,keyasint"`
	OverMS int64       `cbor:"2,keyasint"`
}

// Kind names the command in journals.
func (Batch) Kind() string { return "registry.batch/1" }

// Size is about the bytes that b writes.
func (b Batch) Size() int {
	n := 256
	for i := range b.Ops {
		n += b.Ops[i].size()
	}
	return n
}

func (o *Op) size() int {
	n := 128 + len(o.Audit)
	if o.Propose != nil {
		n += len(o.Propose.Packed) + 128
	}
	if o.Approve != nil {
		n += len(o.Approve.Approval)
	}
	if o.Commit != nil {
		n += len(o.Commit.Entry) + len(o.Commit.Packed) + len(o.Commit.Set)
	}
	if o.Forget != nil {
		n += len(o.Forget.IDs) * (len(ulid.ULID{}) + 1)
	}
	return n
}

// BatchResult is what Apply answers: the two heads after the batch, and the tree.
type BatchResult struct {
	Head  HeadRef
	Audit AuditRef
	Tree  treeRow
}

// GuardError says which guard refused a batch, and for which op; -1 is the batch's own compare-and-set. To a caller it is
// record.ErrChainMismatch: what it built on has moved.
type GuardError struct {
	Op    int
	Guard string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("registry batch: op %d: guard %q does not hold", e.Op, e.Guard)
}

// Is makes it record.ErrChainMismatch.
func (e *GuardError) Is(target error) bool { return target == record.ErrChainMismatch }
