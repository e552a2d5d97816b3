package registry

import (
	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// Terminal and live states of a proposal.
const (
	StatePending   = "pending"
	StateCommitted = "committed"
	StateExpired   = "expired"
	StateStale     = "stale" // another proposal took its version, or the one it builds on is gone
	StateWithdrawn = "withdrawn"
)

// Proposed answers Propose. The same payload proposed again gives the same answer while the proposal lives.
type Proposed struct {
	ID        string // "p_" and a ULID
	PayloadB3 b3.Digest
	ExpiresAt string // RFC 3339, UTC
	Replayed  bool   // the proposal was there before
}

// Quorum is how many distinct keys a payload needs and how many are active.
type Quorum struct{ M, N int }

// Approved answers Approve.
type Approved struct {
	Approvals int // recorded so far, this one included
	Quorum    Quorum
}

// Committed answers Commit and Genesis. Replayed is set when an earlier call did the work.
type Committed struct {
	Version     uint64
	PayloadB3   b3.Digest
	CommittedAt string // RFC 3339, UTC
	Hash        b3.Digest
	Replayed    bool
}

// Event is one committed version, as the stream tells it.
type Event struct {
	Version     uint64    `json:"version"`
	PayloadB3   b3.Digest `json:"payload_b3"`
	CommittedAt string    `json:"committed_at"`
	CorrID      string    `json:"corr_id,omitempty"`
	Hash        b3.Digest `json:"hash"`
	Kind        string    `json:"kind"`
}

// Updated is what the publisher tells the rest of the node: HEAD is at Version now, and B3 is its payload.
type Updated struct {
	Version uint64
	B3      b3.Digest
}

// VersionDoc is one committed version. Nothing in it can change later. Body is its JSON, to be served as it is under
// ETag; both are immutable.
type VersionDoc struct {
	Version uint64
	Body    []byte
	ETag    string
}

// VersionStatus is what may change about a version after its commit.
type VersionStatus struct {
	SupersededBy uint64 // 0: none
	Pruned       bool
	CoveredBy    uint64 // size of the checkpoint over it, 0: none
}

// Diff is what turns one version's items into another's, both sorted by id.
type Diff struct {
	Put    []record.Item
	Remove []string
}

// Proposal is a proposal as a reader sees it. A terminal one keeps only ID, State, Version and PayloadB3.
type Proposal struct {
	ID          string
	State       string
	Version     uint64
	PayloadB3   b3.Digest
	PrevHash    b3.Digest
	Kind        string
	Mode        string
	CreatedAt   string
	ExpiresAt   string
	ItemsCount  int
	ItemsRoot   string
	SignerSetB3 b3.Digest
	Approvals   []record.Approval
	Quorum      Quorum
}

// ProposalList is a page of live proposals, oldest first. Next is the cursor of the page after it, "" at the end.
type ProposalList struct {
	Proposals []Proposal
	Next      string
}

// SignersDoc is a signer set with the log entry that installed it.
type SignersDoc struct {
	Epoch    uint64
	Version  uint64 // that installed it
	Set      *record.SignerSet
	Artifact []byte // exact bytes of that version's entry
}
