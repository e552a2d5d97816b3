package registry

import (
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

// Bodies that are answers of the engine.
type (
	Head             = registryapi.Head // converted from registry.Head
	Version          = registry.Version
	Diff             = registry.Diff
	Proposed         = registry.Proposed
	Approved         = registry.Approved
	Committed        = registry.Committed
	Signers          = registry.Signers
	Update           = registry.Update
	VersionStatus    = registry.VersionStatus
	Approval         = record.Approval // posted without received_at, which the node fills in
	Quorum           = registry.Quorum
	Proposal         = registry.Proposal
	ProposalList     = registry.ProposalList
	AuditChain       = registry.AuditChain
	InclusionProof   = registry.InclusionProof
	ConsistencyProof = registry.ConsistencyProof
	ItemProof        = record.ItemProof
	HighWater        = registry.HighWater
	RetentionPlan    = registry.RetentionPlan
	Objection        = registry.Objection
	CaughtUp         = registry.CaughtUp
	Horizon          = registry.Horizon
)

// Propose is the body of POST /registry/proposals.
type Propose struct {
	SchemaVersion string         `json:"schema_version" format:"version"`
	Payload       jsontext.Value `json:"payload"`
	PayloadB3     string         `json:"payload_b3,omitzero" format:"b3"`
}

// Genesis is the body of POST /admin/v1/registry/genesis.
type Genesis struct {
	Payload   jsontext.Value `json:"payload"`
	Approvals []Approval     `json:"approvals"`
}

// EventUpdate names the frames of GET /registry/stream that carry an Update.
const EventUpdate = "registry.update"

// Hello is the data of the first frame of a stream.
type Hello struct {
	Incarnation string `json:"incarnation"`
	Head        Head   `json:"head"`
}

// Lagged is the data of a lagged frame: events from..to were not sent. The client reconciles with
// head or diff.
type Lagged struct {
	Missed uint64 `json:"missed"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Head   Head   `json:"head"`
}

// Checkpoint is a signed checkpoint as JSON.
type Checkpoint struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
	Root   string `json:"root" doc:"standard base64 of 32 bytes"`
	At     string `json:"at,omitzero" format:"time" doc:"of the cosignature of the node"`
	Note   string `json:"note" doc:"the signed note"`
}

// CheckpointList is the body of GET /registry/checkpoints.
type CheckpointList struct {
	Notes []string `json:"notes"`
}

func checkpointBody(s checkpoint.Signed) Checkpoint {
	out := Checkpoint{Origin: s.Origin, Size: s.Size, Root: s.Root.String(), Note: string(s.Note)}
	if !s.At.IsZero() {
		out.At = record.FormatTime(s.At)
	}
	return out
}

// VersionList is the body of GET /registry/versions: newest first.
type VersionList struct {
	Versions []VersionLine `json:"versions"`
	Next     uint64        `json:"next,omitzero" doc:"?before= of the next page"`
}

// VersionLine is one version of VersionList.
type VersionLine struct {
	Version     uint64    `json:"version" min:"1"`
	Kind        string    `json:"kind" enum:"genesis|update|signers|supersede"`
	PayloadB3   b3.Digest `json:"payload_b3" format:"b3"`
	Hash        b3.Digest `json:"hash" format:"b3"`
	CommittedAt string    `json:"committed_at" format:"time"`
	ProposalID  string    `json:"proposal_id"`
	Signers     []string  `json:"signers" doc:"ids of the signers whose approvals counted"`
}

// CatchUp is the body of POST /admin/v1/registry/catch-up.
type CatchUp struct {
	From string `json:"from" doc:"a snapshot file or an export directory on the disk of the node"`
}
