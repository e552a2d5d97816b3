package registry

import "ronbox/engines/registry/document"

// Documents that the engine returns.
type (
	Head             = document.Head
	Version          = document.Version
	Document         = document.Encoded
	VersionStatus    = document.VersionStatus
	Diff             = document.Diff
	Signers          = document.Signers
	Update           = document.Update
	AuditChain       = document.AuditChain
	InclusionProof   = document.InclusionProof
	ConsistencyProof = document.ConsistencyProof
	Horizon          = document.Horizon

	Proposed     = document.Proposed
	Approved     = document.Approved
	Committed    = document.Committed
	Quorum       = document.Quorum
	Proposal     = document.Proposal
	ProposalList = document.ProposalList

	HighWater     = document.HighWater
	Objection     = document.Objection
	RetentionPlan = document.RetentionPlan
	FollowStatus  = document.FollowStatus
	CaughtUp      = document.CaughtUp
)

// States of a proposal.
const (
	StatePending   = document.StatePending
	StateCommitted = document.StateCommitted
	StateExpired   = document.StateExpired
	StateStale     = document.StateStale
	StateWithdrawn = document.StateWithdrawn
)
