package document

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/head"
	"ronbox/engines/registry/record"
)

// States of a proposal. All but StatePending are final.
const (
	StatePending   = "pending"
	StateCommitted = "committed"
	StateExpired   = "expired"
	StateStale     = "stale" // another proposal became its version, or its base is gone
	StateWithdrawn = "withdrawn"
)

// Proposed is the answer of Propose. The same payload gets the same answer while the proposal is
// live.
type Proposed struct {
	ID         string    `json:"proposal_id"` // "p_" and a ULID
	PayloadB3  b3.Digest `json:"payload_b3" format:"b3"`
	ExpiresAt  string    `json:"expires_at" format:"time"`
	PayloadURL string    `json:"payload_url"` // filled in by the HTTP surface
	Replayed   bool      `json:"-"`           // the proposal existed before
}

// Quorum is the number of distinct keys that a payload needs, and the number of active keys.
type Quorum struct {
	M int `json:"m"`
	N int `json:"n"`
}

// Approved is the answer of Approve.
type Approved struct {
	Status    string `json:"status" enum:"accepted"`
	Approvals int    `json:"approvals"` // recorded so far, with this one
	Quorum    Quorum `json:"quorum"`
}

// Committed is the answer of Commit and Genesis.
type Committed struct {
	Version     uint64    `json:"version" min:"1"`
	PayloadB3   b3.Digest `json:"payload_b3" format:"b3"`
	CommittedAt string    `json:"committed_at" format:"time"`
	Hash        b3.Digest `json:"hash" format:"b3"`
	Replayed    bool      `json:"-"` // an earlier call made the version
}

// Update is one committed version, as an event of the stream.
type Update struct {
	Version     uint64    `json:"version" min:"1"`
	PayloadB3   b3.Digest `json:"payload_b3" format:"b3"`
	CommittedAt string    `json:"committed_at" format:"time"`
	CorrID      string    `json:"corr_id,omitzero"`
	Hash        b3.Digest `json:"hash" format:"b3"`
	Kind        string    `json:"kind" enum:"genesis|update|signers|supersede"`
}

// Head is HEAD as a reader sees it.
type Head = head.Head

// Version is one committed version. It never changes.
type Version struct {
	SchemaVersion string            `json:"schema_version" format:"version"`
	Version       uint64            `json:"version" min:"1"`
	Items         []jsontext.Value  `json:"items,omitzero"`
	PayloadB3     b3.Digest         `json:"payload_b3" format:"b3"`
	Approvals     []record.Approval `json:"approvals"`
	PrevHash      b3.Digest         `json:"prev_hash" format:"b3"`
	CommittedAt   string            `json:"committed_at" format:"time"`
	Hash          b3.Digest         `json:"hash" format:"b3"`
	Kind          string            `json:"kind" enum:"genesis|update|signers|supersede"`
	ItemsRoot     string            `json:"items_root" format:"sha256"`
	Epoch         uint64            `json:"epoch" min:"1"`
}

// Encoded is the JSON of a Head or a Version, to be served unchanged under its strong validator.
// It is immutable.
type Encoded struct {
	JSON []byte
	ETag string // quoted
}

// Encode returns the JSON of a Head or a Version with its validator.
func Encode(of any) Encoded {
	raw, err := json.Marshal(of)
	if err != nil {
		panic("registry: " + err.Error()) // texts come from canonical bytes, hence are UTF-8
	}
	raw = append(raw, '\n')
	return Encoded{JSON: raw, ETag: `"` + b3.Sum(raw).String() + `"`}
}

// VersionStatus holds the properties of a version that may change after its commit.
type VersionStatus struct {
	SupersededBy uint64 `json:"superseded_by,omitzero"` // 0: not superseded
	Pruned       bool   `json:"pruned"`
	CoveredBy    uint64 `json:"covered_by,omitzero" doc:"size of the checkpoint over it"`
}

// Diff is the delta between the items of two versions, both parts sorted by id.
type Diff struct {
	Put    []jsontext.Value `json:"put"`
	Remove []string         `json:"remove"`
}

// Proposal is a proposal as a reader sees it. Of an ended one only the version, the payload and
// the outcome are known.
type Proposal struct {
	ID          string            `json:"proposal_id"`
	State       string            `json:"state" enum:"pending|committed|expired|stale|withdrawn"`
	Version     uint64            `json:"version" min:"1"`
	PayloadB3   b3.Digest         `json:"payload_b3" format:"b3"`
	EndedAt     string            `json:"ended_at,omitzero" format:"time" doc:"of an ended proposal"`
	PrevHash    b3.Digest         `json:"prev_hash,omitzero" format:"b3" doc:"this and the next members: of a pending proposal"`
	Kind        string            `json:"kind,omitzero" enum:"genesis|update|signers|supersede"`
	Mode        string            `json:"mode,omitzero" enum:"full|delta"`
	CreatedAt   string            `json:"created_at,omitzero" format:"time"`
	ExpiresAt   string            `json:"expires_at,omitzero" format:"time"`
	ItemsCount  *int              `json:"items_count,omitzero"`
	ItemsRoot   string            `json:"items_root,omitzero" format:"sha256"`
	SignerSetB3 b3.Digest         `json:"signer_set_b3,omitzero" format:"b3"`
	Approvals   []record.Approval `json:"approvals,omitzero"`
	Quorum      *Quorum           `json:"quorum,omitzero"`
	// filled in by the HTTP surface
	PayloadURL string `json:"payload_url,omitzero" doc:"of a pending or committed proposal"`
}

// ProposalList is a page of live proposals, oldest first. Next is the cursor of the next page, ""
// at the end.
type ProposalList struct {
	Proposals []Proposal `json:"proposals"`
	Next      string     `json:"next,omitzero" doc:"?cursor= of the next page"`
}

// Signers is a signer set with the log entry that installed it.
type Signers struct {
	Epoch       uint64         `json:"epoch" min:"1"`
	Version     uint64         `json:"version" min:"1" doc:"version that installed the set"`
	SignerSetB3 b3.Digest      `json:"signer_set_b3" format:"b3"`
	SignerSet   jsontext.Value `json:"signer_set"`
	Artifact    jsontext.Value `json:"artifact" doc:"the log entry that installed it"`
}
