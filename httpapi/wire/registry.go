package wire

import "github.com/go-json-experiment/json/jsontext"

// Head is the body of GET /registry/head.
type Head struct {
	Version        uint64 `json:"version" doc:"0: no genesis yet"`
	PayloadB3      string `json:"payload_b3" format:"b3"`
	CommittedAt    string `json:"committed_at" format:"time?"`
	Hash           string `json:"hash" format:"b3"`
	Epoch          uint64 `json:"epoch"`
	Expiry         string `json:"expiry,omitzero" format:"time"`
	MinVersion     uint64 `json:"min_version"`
	CheckpointSize uint64 `json:"checkpoint_size"`
	Incarnation    string `json:"incarnation"`
}

// Version is the body of GET /registry/{v}. Items is absent with ?items=0.
type Version struct {
	SchemaVersion string           `json:"schema_version" format:"version"`
	Version       uint64           `json:"version"`
	Items         []jsontext.Value `json:"items,omitempty"`
	PayloadB3     string           `json:"payload_b3" format:"b3"`
	Approvals     []Approval       `json:"approvals"`
	PrevHash      string           `json:"prev_hash" format:"b3"`
	CommittedAt   string           `json:"committed_at" format:"time"`
	Hash          string           `json:"hash" format:"b3"`
	Kind          string           `json:"kind" enum:"genesis|update|signers|supersede"`
	ItemsRoot     string           `json:"items_root" format:"sha256"`
	Epoch         uint64           `json:"epoch"`
}

// VersionStatus is the body of GET /registry/{v}/status: what may change later.
type VersionStatus struct {
	SupersededBy uint64 `json:"superseded_by,omitzero"`
	Pruned       bool   `json:"pruned"`
	CoveredBy    uint64 `json:"covered_by,omitzero" doc:"size of the checkpoint over it"`
}

// Diff is the body of GET /registry/diff.
type Diff struct {
	Put    []jsontext.Value `json:"put"`
	Remove []string         `json:"remove"`
}

// Approval is one signer's signature over a payload; the body of POST
// /registry/approvals/{id}, where received_at is the node's to fill.
type Approval struct {
	SignerID   string `json:"signer_id"`
	Algo       string `json:"algo"`
	Sig        string `json:"sig" format:"sig" doc:"strict standard base64, 64 bytes"`
	SignedAt   string `json:"signed_at" format:"time"`
	ReceivedAt string `json:"received_at,omitzero" format:"time"`
}

// Propose is the body of POST /registry/proposals.
type Propose struct {
	SchemaVersion string         `json:"schema_version" format:"version"`
	Payload       jsontext.Value `json:"payload"`
	PayloadB3     string         `json:"payload_b3,omitzero" format:"b3"`
}

// Proposed answers Propose.
type Proposed struct {
	ProposalID string `json:"proposal_id"`
	PayloadB3  string `json:"payload_b3" format:"b3"`
	ExpiresAt  string `json:"expires_at" format:"time"`
	PayloadURL string `json:"payload_url"`
}

// Quorum is how many keys are needed and how many can sign.
type Quorum struct {
	M int `json:"m"`
	N int `json:"n"`
}

// Approved answers an approval.
type Approved struct {
	Status    string `json:"status" enum:"accepted"`
	Approvals int    `json:"approvals"`
	Quorum    Quorum `json:"quorum"`
}

// Committed answers a commit and a genesis.
type Committed struct {
	Version     uint64 `json:"version"`
	PayloadB3   string `json:"payload_b3" format:"b3"`
	CommittedAt string `json:"committed_at" format:"time"`
	Hash        string `json:"hash" format:"b3"`
}

// Proposal is the body of GET /registry/proposals/{id} and a row of the list.
type Proposal struct {
	ProposalID  string     `json:"proposal_id"`
	State       string     `json:"state" enum:"pending|committed|expired|stale|withdrawn"`
	Version     uint64     `json:"version"`
	PayloadB3   string     `json:"payload_b3" format:"b3"`
	PrevHash    string     `json:"prev_hash" format:"b3"`
	Kind        string     `json:"kind" enum:"genesis|update|signers|supersede"`
	Mode        string     `json:"mode" enum:"full|delta"`
	CreatedAt   string     `json:"created_at" format:"time"`
	ExpiresAt   string     `json:"expires_at" format:"time"`
	ItemsCount  int        `json:"items_count"`
	ItemsRoot   string     `json:"items_root" format:"sha256"`
	SignerSetB3 string     `json:"signer_set_b3" format:"b3"`
	Approvals   []Approval `json:"approvals"`
	Quorum      Quorum     `json:"quorum"`
	PayloadURL  string     `json:"payload_url"`
}

// ProposalList is the body of GET /registry/proposals: live ones, oldest first.
type ProposalList struct {
	Proposals []Proposal `json:"proposals"`
	Next      string     `json:"next,omitzero" doc:"?cursor= of the next page"`
}

// Signers is the body of GET /registry/signers[/{epoch}].
type Signers struct {
	Epoch       uint64         `json:"epoch"`
	Version     uint64         `json:"version" doc:"version that installed the set"`
	SignerSetB3 string         `json:"signer_set_b3" format:"b3"`
	SignerSet   jsontext.Value `json:"signer_set"`
	Artifact    jsontext.Value `json:"artifact" doc:"the log entry that installed it"`
}

// Genesis is the body of POST /admin/v1/registry/genesis.
type Genesis struct {
	Payload   jsontext.Value `json:"payload"`
	Approvals []Approval     `json:"approvals"`
}

// Names of the events on GET /registry/stream.
const (
	EventHello    = "hello"
	EventUpdate   = "registry.update"
	EventLagged   = "lagged"
	EventShutdown = "shutdown"
)

// Hello is the data of the first frame of a stream.
type Hello struct {
	Incarnation string `json:"incarnation"`
	Head        Head   `json:"head"`
}

// Update is the data of a registry.update frame.
type Update struct {
	Version     uint64 `json:"version"`
	PayloadB3   string `json:"payload_b3" format:"b3"`
	CommittedAt string `json:"committed_at" format:"time"`
	CorrID      string `json:"corr_id,omitzero"`
	Hash        string `json:"hash" format:"b3"`
	Kind        string `json:"kind" enum:"genesis|update|signers|supersede"`
}

// Lagged is the data of a lagged frame: events from..to were not sent; the
// client reconciles with head or diff.
type Lagged struct {
	Missed uint64 `json:"missed"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Head   Head   `json:"head"`
}
