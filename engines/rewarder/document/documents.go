package document

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/rewarder/record"
)

// State is the state of a run.
type State string

// The states: accepted → sealed → settling → settled; accepted → failed or quarantined (invariant),
// which are final; settling ⇄ quarantined (egress); settled ⇄ settling while payees are parked. A
// failed run leaves its epoch free.
const (
	Accepted    State = "accepted"
	Sealed      State = "sealed"
	Settling    State = "settling"
	Settled     State = "settled"
	Quarantined State = "quarantined"
	Failed      State = "failed"
)

// Kinds of quarantine.
const (
	KindInvariant = "invariant" // final: the run has no intents
	KindEgress    = "egress"    // payment is paused until Emit
)

// Quarantine is the reason why a run is not paid.
type Quarantine struct {
	Kind   string `json:"kind" enum:"invariant|egress" doc:"for good, or until emit"`
	Reason string `json:"reason"`
	Has    string `json:"has,omitzero" doc:"the two numbers that disagree"`
	Need   string `json:"need,omitzero"`

	Account string `json:"account,omitzero" doc:"the account that the ledger refuses, a payee or the payer"`
}

// Policy is a stored policy.
type Policy struct {
	ID         string             `json:"id"`
	Hash       b3.Digest          `json:"hash"`
	Body       jsontext.Value     `json:"body" doc:"the canonical bytes, over which the hash is computed"`
	Signatures []record.Signature `json:"signatures"`
	Created    bool               `json:"-" cbor:"-"` // set by PutPolicy: false if the same bytes existed before
}

// OpenInput declares an upload of usage. The same declaration opens the same upload again.
type OpenInput struct {
	EpochID       string         `json:"epoch_id"`
	Asset         string         `json:"asset"`
	PoolMinor     engines.Amount `json:"pool_minor" doc:"the pool to share"`
	Metrics       []string       `json:"metrics" doc:"the metrics of the rows, sorted, each once"`
	Account       string         `json:"account" doc:"the funding account; its balance is read at the seal"`
	WindowStartMS uint64         `json:"window_start_ms,omitzero" doc:"Unix milliseconds"`
	WindowEndMS   uint64         `json:"window_end_ms,omitzero"`
	ProducedAtMS  uint64         `json:"produced_at_ms,omitzero"`
	Expect        b3.Digest      `json:"accounting_cid,omitzero" doc:"the expected digest of the rows"`
}

// Upload is an input before and after it is sealed.
type Upload struct {
	ID     b3.Digest `json:"upload" doc:"digest of the declaration and its tenant: opening again resumes"`
	Parts  uint32    `json:"parts" doc:"number of stored parts, which is the number of the next part"`
	Rows   uint64    `json:"rows"`
	Sealed b3.Digest `json:"accounting_cid,omitzero" doc:"once it is sealed"`

	Header  []byte    `json:"-" cbor:"header"` // a snapshot without rows and root
	Account string    `json:"-" cbor:"account"`
	Expect  b3.Digest `json:"-" cbor:"expect"`
	Part    b3.Digest `json:"-" cbor:"part"` // digest of the last part
	Last    []byte    `json:"-" cbor:"last"` // last row

	// Rows of schema 1 lack these. Such an upload has no owner, does not expire, and is
	// administered by holders of rewarder.admin.
	Owner   string      `json:"-" cbor:"owner,omitempty"`   // principal that declared it
	Bytes   uint64      `json:"-" cbor:"bytes,omitempty"`   // size of its rows in the file
	Created int64       `json:"-" cbor:"created,omitempty"` // Unix ms of the declaration
	Changed int64       `json:"-" cbor:"changed,omitempty"` // Unix ms of the last part
	Inputs  []b3.Digest `json:"-" cbor:"inputs,omitempty"`  // inputs sealed from it, oldest first
	Dropped bool        `json:"-" cbor:"dropped,omitempty"` // its rows are being deleted
}

// States of an upload.
const (
	UploadOpen     = "open"
	UploadSealed   = "sealed"
	UploadUsed     = "used"     // by the run of its epoch
	UploadDropping = "dropping" // its rows are being deleted
	UploadCorrupt  = "corrupt"  // its row is damaged
)

// UploadInfo describes an upload in a list.
type UploadInfo struct {
	ID            b3.Digest `json:"upload"`
	State         string    `json:"state" enum:"open|sealed|used|dropping|corrupt"`
	Tenant        string    `json:"tenant,omitzero"`
	EpochID       string    `json:"epoch_id,omitzero"`
	Owner         string    `json:"owner,omitzero" doc:"the principal that declared it, if known"`
	Parts         uint32    `json:"parts"`
	Rows          uint64    `json:"rows"`
	Bytes         uint64    `json:"bytes" doc:"counted against the quota of its owner"`
	AccountingCID b3.Digest `json:"accounting_cid,omitzero" doc:"once it is sealed"`
	CreatedAt     string    `json:"created_at,omitzero" format:"time"`
	ExpiresAt     string    `json:"expires_at,omitzero" format:"time" doc:"unless a part or the seal comes first"`
}

// UploadPage is a page of uploads in the order of their ids. It may hold fewer than limit uploads,
// or none, although there is a next page.
type UploadPage struct {
	Uploads []UploadInfo `json:"uploads"`
	Next    string       `json:"next,omitzero" doc:"?after= of the next page"`
}

// Input is sealed usage with the balance of the funding account at that time.
type Input struct {
	InputsCID     b3.Digest      `json:"inputs_cid"`
	AccountingCID b3.Digest      `json:"accounting_cid"`
	LedgerCID     b3.Digest      `json:"ledger_cid"`
	Snapshot      jsontext.Value `json:"snapshot" doc:"the hashed bytes of accounting_cid"`
	Ledger        jsontext.Value `json:"ledger" doc:"the hashed bytes of ledger_cid"`
	Upload        b3.Digest      `json:"-" cbor:"upload"` // the upload that holds the rows
}

// ComputeRequest requests the run of an epoch.
type ComputeRequest struct {
	InputsCID  b3.Digest `json:"inputs_cid"`
	PolicyID   string    `json:"policy_id"`
	PolicyHash b3.Digest `json:"policy_hash"`

	SkipRefused bool `json:"skip_refused,omitzero" doc:"park refused payees instead of pausing the run"`
	EmptyOK     bool `json:"empty_ok,omitzero" doc:"accept an empty run, which uses up its epoch"`

	Deadline time.Time `json:"-"` // deadline of the caller; zero: none
}

// Run is the run of an epoch, as answered and as stored in its slot. Members after Attempt are set
// once it is sealed or quarantined.
type Run struct {
	Epoch         string    `json:"epoch"`
	Tenant        string    `json:"tenant"`
	State         State     `json:"state" enum:"accepted|sealed|settling|settled|quarantined|failed"`
	RunKey        b3.Digest `json:"run_key"`
	AccountingCID b3.Digest `json:"accounting_cid"`
	InputsCID     b3.Digest `json:"inputs_cid"`
	PolicyID      string    `json:"policy_id"`
	PolicyHash    b3.Digest `json:"policy_hash"`
	AcceptedAt    string    `json:"accepted_at" format:"time"`
	DeadlineAt    string    `json:"deadline_at" format:"time" doc:"by which it must be computed"`
	Reason        string    `json:"reason,omitzero" doc:"of a failed run"`
	Attempt       uint32    `json:"attempt" doc:"number of runs of this epoch, including failed ones"`

	Commitment    b3.Digest   `json:"commitment,omitzero"`
	PoolMinor     string      `json:"pool_minor,omitzero"`
	PayoutMinor   string      `json:"payout_minor,omitzero"`
	ResidualMinor string      `json:"residual_minor,omitzero"`
	Actors        uint64      `json:"actors"`
	Transactions  uint32      `json:"transactions" doc:"ledger transactions that pay the run"`
	Acked         uint32      `json:"acked" doc:"transactions that are done"`
	Artifact      string      `json:"artifact,omitzero" enum:"pending|done|failed|off" doc:"state of the files"`
	Quarantine    *Quarantine `json:"quarantine,omitzero"`

	// Rows of schema 1 lack these: tallyOf computes the first two.
	PaidMinor   string `json:"paid_minor,omitzero" doc:"the part of payout_minor that the ledger has acknowledged"`
	PaidActors  uint64 `json:"paid_actors,omitzero" doc:"paid actors"`
	Parked      uint64 `json:"parked,omitzero" doc:"payees that the ledger has refused and emit has not paid yet"`
	ParkedMinor string `json:"parked_minor,omitzero" doc:"the part of payout_minor owed to parked payees"`
	SkipRefused bool   `json:"skip_refused,omitzero" doc:"payees that the ledger refuses are parked"`

	// Only rows of a node in a fleet have these.
	PinVersion uint64 `json:"pin_version,omitzero" doc:"version of the registry that permitted the policy"`
	Pin        string `json:"pin,omitzero" doc:"item of that version that pins the policy; missing if the tenant has none"`

	Again bool `json:"-" cbor:"again,omitempty"` // Emit was called while the run was being paid

	Mark     string         `json:"mark,omitzero" cbor:"-" doc:"pass it as ?seen= to wait for the next change"`
	Manifest jsontext.Value `json:"manifest,omitzero" cbor:"-" doc:"the exact bytes that the commitment is made over"`
	Joined   bool           `json:"joined,omitzero" cbor:"-" doc:"answers compute: the same run was under way"`
	Replayed bool           `json:"replayed,omitzero" cbor:"-" doc:"answers compute: the run exists"`
	Held     bool           `json:"held,omitzero" cbor:"-" doc:"answers compute: the ledger does not answer"`
}

// MaxPage bounds the rows of a page.
const MaxPage = 1000

// EpochPage is a page of epochs, without manifests.
type EpochPage struct {
	Epochs []Run  `json:"epochs"`
	Next   string `json:"next,omitzero" doc:"?after= of the next page"`
}

// AllocationPage is a page of allocations in the order of actors.
type AllocationPage struct {
	Allocations []record.Allocation `json:"allocations"`
	Next        string              `json:"next,omitzero" doc:"?after= of the next page"`
}

// RewardProof proves the allocation of an actor or, if it has none, the allocations between which
// it would be.
type RewardProof struct {
	Absent     bool           `json:"absent"`
	Actor      string         `json:"actor"`
	Commitment b3.Digest      `json:"commitment"`
	Header     jsontext.Value `json:"header" doc:"the exact bytes that the commitment is made over"`
	Leaves     []ProofLeaf    `json:"leaves"`
	Schema     string         `json:"schema" enum:"ronbox.rw.proof/1"`
}

// ProofLeaf is an allocation with its Merkle path to the root.
type ProofLeaf struct {
	Actor  string         `json:"actor"`
	Amount engines.Amount `json:"amount_minor"`
	Index  uint64         `json:"index"`
	Path   []b3.Digest    `json:"path"`
	Score  engines.Amount `json:"score"`
}

// Results of an intent.
const (
	IntentPending  = "pending"
	IntentAccepted = "accepted"
	IntentDup      = "dup"    // the ledger had executed it before
	IntentParked   = "parked" // the ledger refuses all its payees: its key is unused
)

// Intent is one transaction of the ledger that pays a chunk of allocations.
type Intent struct {
	Index    uint32 `json:"index"`
	Key      string `json:"key" doc:"the ledger executes a key at most once"`
	Result   string `json:"result" enum:"pending|accepted|dup|parked"`
	TxID     string `json:"txid,omitzero" doc:"of the first payment"`
	Seq      uint64 `json:"seq,omitzero"`
	Attempts uint32 `json:"attempts"`
}

// Parked is a payee that the ledger has refused. The row stays after it was paid.
type Parked struct {
	Actor  string `json:"actor"`
	Amount string `json:"amount_minor"`
	Index  uint64 `json:"index" doc:"index of the allocation in the run"`
	Result string `json:"result" enum:"parked|accepted|dup"`
	Reason string `json:"reason,omitzero" doc:"of the last refusal"`
	TxID   string `json:"txid,omitzero" doc:"of the payment"`
	Seq    uint64 `json:"seq,omitzero"`
}

// ParkedPage is a page of parked payees in the order of actors.
type ParkedPage struct {
	Parked []Parked `json:"parked"`
	Next   uint64   `json:"next,omitzero" doc:"?from= of the next page"`
}

// Settlement is the progress of the payment of a run.
type Settlement struct {
	State        State     `json:"state" enum:"sealed|settling|settled|quarantined"`
	RunKey       b3.Digest `json:"run_key"`
	PayoutMinor  string    `json:"payout_minor"`
	Transactions uint32    `json:"transactions"`
	Acked        uint32    `json:"acked"`
	PaidMinor    string    `json:"paid_minor"`
	Parked       uint64    `json:"parked"`
	Intents      []Intent  `json:"intents"`
	Next         uint32    `json:"next,omitzero" doc:"?from= of the next page"`
}

// States of the files of a run.
const (
	ArtifactPending = "pending"
	ArtifactDone    = "done"
	ArtifactFailed  = "failed"
	ArtifactOff     = "off" // the node writes no files
)

// RunFile describes a file of a run.
type RunFile struct {
	Name  string    `json:"name"`
	State string    `json:"state" enum:"ok|missing|differs|written"`
	Bytes int64     `json:"bytes" doc:"expected length"`
	B3    b3.Digest `json:"b3" doc:"BLAKE3 of the expected bytes"`
}

// RunFiles describes the files of a run on the disk of the node.
type RunFiles struct {
	Epoch      string    `json:"epoch"`
	RunKey     b3.Digest `json:"run_key"`
	Commitment b3.Digest `json:"commitment"`
	Folder     string    `json:"folder" doc:"path on the node"`
	Files      []RunFile `json:"files"`
}

// PolicyInfo describes a policy in a list.
type PolicyInfo struct {
	ID      string    `json:"id"`
	Hash    b3.Digest `json:"hash"`
	Signers []string  `json:"signers" doc:"public keys that have signed the policy"`
}

// PolicyPage is a page of policies in the order of their ids.
type PolicyPage struct {
	Policies []PolicyInfo `json:"policies"`
	Next     string       `json:"next,omitzero" doc:"?after= of the next page"`
}
