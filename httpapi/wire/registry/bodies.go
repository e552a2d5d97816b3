package registry

import (
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// Bodies that are answers of the engine.
type (
	Version          = document.Version
	Diff             = document.Diff
	Proposed         = document.Proposed
	Approved         = document.Approved
	Committed        = document.Committed
	Signers          = document.Signers
	Update           = document.Update
	VersionStatus    = document.VersionStatus
	Approval         = record.Approval // posted without received_at, which the node fills in
	Quorum           = document.Quorum
	Proposal         = document.Proposal
	ProposalList     = document.ProposalList
	AuditChain       = document.AuditChain
	InclusionProof   = document.InclusionProof
	ConsistencyProof = document.ConsistencyProof
	ItemProof        = record.ItemProof
	HighWater        = document.HighWater
	RetentionPlan    = document.RetentionPlan
	Objection        = document.Objection
	CaughtUp         = document.CaughtUp
	Horizon          = document.Horizon
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

// TargetGroup is an element of the body of GET /registry/sd, in the form of Prometheus' http_sd.
type TargetGroup struct {
	Targets []string          `json:"targets" doc:"host:port of one service"`
	Labels  map[string]string `json:"labels" doc:"scheme and path of the endpoint, and id, what and region as meta labels"`
}
