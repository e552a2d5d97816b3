package rewarder

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/rewarder/record"
)

// DefaultTenant is whom peers of the socket and tokens without a tenant act for.
const DefaultTenant = "default"

// Call says who asks, for which tenant, and under which correlation id.
type Call struct {
	By     engines.Actor
	Tenant string
	CorrID string
}

// State is where a run stands.
type State string

// The states: accepted → sealed → settling → settled; accepted → failed or quarantined (invariant), both ends; settling ⇄ quarantined (egress).
// A run that failed leaves its epoch free.
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
	KindInvariant = "invariant" // for good: there are no intents
	KindEgress    = "egress"    // payment is paused until Emit
)

// Quarantine says why a run is not paid.
type Quarantine struct {
	Kind   string `json:"kind" enum:"invariant|egress" doc:"for good, or until emit"`
	Reason string `json:"reason"`
	Has    string `json:"has,omitzero" doc:"the two numbers that disagree"`
	Need   string `json:"need,omitzero"`
}

// Policy is a stored policy.
type Policy struct {
	ID         string             `json:"id"`
	Hash       b3.Digest          `json:"hash"`
	Body       jsontext.Value     `json:"body" doc:"the canonical bytes, which the hash is of"`
	Signatures []record.Signature `json:"signatures"`
	Created    bool               `json:"-" cbor:"-"` // set by PutPolicy: false if the same bytes stood already
}

// OpenInput declares an upload of usage. The same declaration opens the same upload again.
type OpenInput struct {
	EpochID       string         `json:"epoch_id"`
	Asset         string         `json:"asset"`
	PoolMinor     engines.Amount `json:"pool_minor" doc:"what is shared"`
	Metrics       []string       `json:"metrics" doc:"those that rows have, sorted, each once"`
	Account       string         `json:"account" doc:"the funding account of the policy, whose balance is noted when the upload is sealed"`
	WindowStartMS uint64         `json:"window_start_ms,omitzero" doc:"Unix milliseconds"`
	WindowEndMS   uint64         `json:"window_end_ms,omitzero"`
	ProducedAtMS  uint64         `json:"produced_at_ms,omitzero"`
	Expect        b3.Digest      `json:"accounting_cid,omitzero" doc:"that the rows must give"`
}

// Upload is an input on its way.
type Upload struct {
	ID     b3.Digest `json:"upload" doc:"of the declaration and its tenant: opening again resumes"`
	Parts  uint32    `json:"parts" doc:"that are there: the next one has this number"`
	Rows   uint64    `json:"rows"`
	Sealed b3.Digest `json:"accounting_cid,omitzero" doc:"once it is sealed"`

	Header  []byte    `json:"-" cbor:"header"` // a snapshot without rows and root
	Account string    `json:"-" cbor:"account"`
	Expect  b3.Digest `json:"-" cbor:"expect"`
	Part    b3.Digest `json:"-" cbor:"part"` // of the last part
	Last    []byte    `json:"-" cbor:"last"` // row

	// Rows of schema 1 have none of these: such an upload has no owner, does not expire, and is administered by holders of rewarder.admin.
	Owner   string      `json:"-" cbor:"owner,omitempty"`   // principal that declared it
	Bytes   uint64      `json:"-" cbor:"bytes,omitempty"`   // of its rows in the file
	Created int64       `json:"-" cbor:"created,omitempty"` // Unix ms of the declaration
	Changed int64       `json:"-" cbor:"changed,omitempty"` // Unix ms of the last part
	Inputs  []b3.Digest `json:"-" cbor:"inputs,omitempty"`  // sealed from it, oldest first
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
	Owner         string    `json:"owner,omitzero" doc:"the principal that declared it; none of an upload of an older release"`
	Parts         uint32    `json:"parts"`
	Rows          uint64    `json:"rows"`
	Bytes         uint64    `json:"bytes" doc:"of the quota of its owner"`
	AccountingCID b3.Digest `json:"accounting_cid,omitzero" doc:"once it is sealed"`
	CreatedAt     string    `json:"created_at,omitzero" format:"time"`
	ExpiresAt     string    `json:"expires_at,omitzero" format:"time" doc:"unless a part or the seal comes before"`
}

// UploadPage is a page of uploads, by id. It may have fewer than limit, or none, and still a next page.
type UploadPage struct {
	Uploads []UploadInfo `json:"uploads"`
	Next    string       `json:"next,omitzero" doc:"?after= of the next page"`
}

// Input is sealed usage, with what the ledger had for it then.
type Input struct {
	InputsCID     b3.Digest      `json:"inputs_cid"`
	AccountingCID b3.Digest      `json:"accounting_cid"`
	LedgerCID     b3.Digest      `json:"ledger_cid"`
	Snapshot      jsontext.Value `json:"snapshot" doc:"the hashed bytes of accounting_cid"`
	Ledger        jsontext.Value `json:"ledger" doc:"the hashed bytes of ledger_cid"`
	Upload        b3.Digest      `json:"-" cbor:"upload"` // which has the rows
}

// ComputeRequest asks for the run of an epoch.
type ComputeRequest struct {
	InputsCID  b3.Digest `json:"inputs_cid"`
	PolicyID   string    `json:"policy_id"`
	PolicyHash b3.Digest `json:"policy_hash"`
	Deadline   time.Time `json:"-"` // of the caller; zero: none
}

// Run is the run of an epoch, as it is answered and as its slot holds it. What follows Attempt is of one that is sealed or quarantined.
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
	Reason        string    `json:"reason,omitzero" doc:"of a run that failed"`
	Attempt       uint32    `json:"attempt" doc:"runs of this epoch, those that failed included"`

	Commitment    b3.Digest   `json:"commitment,omitzero"`
	PoolMinor     string      `json:"pool_minor,omitzero"`
	PayoutMinor   string      `json:"payout_minor,omitzero"`
	ResidualMinor string      `json:"residual_minor,omitzero"`
	Actors        uint64      `json:"actors"`
	Transactions  uint32      `json:"transactions" doc:"of the ledger, that pay it"`
	Acked         uint32      `json:"acked" doc:"of them, done"`
	Artifact      string      `json:"artifact,omitzero" enum:"pending|done|failed|off" doc:"of the files of the run"`
	Quarantine    *Quarantine `json:"quarantine,omitzero"`

	Manifest jsontext.Value `json:"manifest,omitzero" cbor:"-" doc:"the exact bytes that the commitment is made over"`
	Joined   bool           `json:"joined,omitzero" cbor:"-" doc:"answers compute: the same run was under way"`
	Replayed bool           `json:"replayed,omitzero" cbor:"-" doc:"answers compute: the same usage, policy and pool has been computed before"`
	Held     bool           `json:"held,omitzero" cbor:"-" doc:"answers compute: the ledger does not answer for now, and the run is paid once it does"`
}

// MaxPage bounds a page of anything.
const MaxPage = 1000

// EpochPage is a page of epochs, without manifests.
type EpochPage struct {
	Epochs []Run  `json:"epochs"`
	Next   string `json:"next,omitzero" doc:"?after= of the next page"`
}

// AllocationPage is a page of what actors get, in actor order.
type AllocationPage struct {
	Allocations []record.Allocation `json:"allocations"`
	Next        string              `json:"next,omitzero" doc:"?after= of the next page"`
}

// RewardProof shows what an actor got or, of one that is absent, between which allocations it would stand.
type RewardProof struct {
	Absent     bool           `json:"absent"`
	Actor      string         `json:"actor"`
	Commitment b3.Digest      `json:"commitment"`
	Header     jsontext.Value `json:"header" doc:"the exact bytes that the commitment is made over"`
	Leaves     []ProofLeaf    `json:"leaves"`
	Schema     string         `json:"schema" enum:"ronbox.rw.proof/1"`
}

// ProofLeaf is an allocation and the way from it to the root of all.
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
	IntentDup      = "dup" // the ledger had done it before
)

// Intent is one transaction of the ledger that pays a chunk of allocations.
type Intent struct {
	Index    uint32 `json:"index"`
	Key      string `json:"key" doc:"under which the ledger does it once, whatever is repeated"`
	Result   string `json:"result" enum:"pending|accepted|dup"`
	TxID     string `json:"txid,omitzero" doc:"of its first payment"`
	Seq      uint64 `json:"seq,omitzero"`
	Attempts uint32 `json:"attempts"`
}

// Settlement is how far the payment of a run has come.
type Settlement struct {
	State        State     `json:"state" enum:"sealed|settling|settled|quarantined"`
	RunKey       b3.Digest `json:"run_key"`
	PayoutMinor  string    `json:"payout_minor"`
	Transactions uint32    `json:"transactions"`
	Acked        uint32    `json:"acked"`
	Intents      []Intent  `json:"intents"`
	Next         uint32    `json:"next,omitzero" doc:"?from= of the next page"`
}
