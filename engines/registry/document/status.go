package document

import "ronbox/appliance/b3"

// CaughtUp is the result of a catch-up.
type CaughtUp struct {
	From    uint64 `json:"from" doc:"version before"`
	To      uint64 `json:"to" doc:"version after"`
	Records uint64 `json:"records" doc:"audit records copied"`
}

// FollowStatus describes a follower.
type FollowStatus struct {
	Hub     string `json:"hub" doc:"URL of the node that is followed"`
	State   string `json:"state" enum:"ok|waiting|stale|fork|rollback|unsound|horizon"`
	Detail  string `json:"detail,omitzero"`
	Version uint64 `json:"version" doc:"of HEAD here"`
	Age     int64  `json:"age_seconds,omitzero" doc:"of the newest checkpoint of the hub"`
}

// HighWater describes the high-water mark and the fork guard.
type HighWater struct {
	Path     string    `json:"path,omitzero" doc:"of the mark; absent: the node has none"`
	MarkSize uint64    `json:"mark_size"` // 0 without a mark
	MarkRoot string    `json:"mark_root,omitzero"`
	MarkAt   string    `json:"mark_at,omitzero" format:"time"`
	Version  uint64    `json:"version" doc:"of HEAD"`
	Hash     b3.Digest `json:"hash" format:"b3"`
	Rollback bool      `json:"rollback" doc:"true: signatures and commits are refused"`
	Reason   string    `json:"reason,omitzero" enum:"restored|older|fork|mark_missing|mark_unreadable|witness"`
	Detail   string    `json:"detail,omitzero"`

	Objections []Objection `json:"objections,omitzero" doc:"of witnesses that have seen another log under this name"`

	Retention RetentionPlan `json:"retention" doc:"the plan of the next cycle of retention"`

	Follow *FollowStatus `json:"follow,omitzero" doc:"of a node that follows another"`
}

// Objection is the refusal of a witness, as an operator sees it.
type Objection struct {
	Witness string `json:"witness" doc:"name and key hash"`
	Size    uint64 `json:"size,omitzero" doc:"of the log that it has seen, if known"`
	Tree    uint64 `json:"tree" doc:"size of the checkpoint that it refused"`
	At      string `json:"at" format:"time"`
	Settled bool   `json:"settled" doc:"the log was adopted in spite of it"`
}

// RetentionPlan describes what the next cycle of retention would remove, or why it removes
// nothing.
type RetentionPlan struct {
	Policy     string `json:"policy" enum:"none|by-age|by-count"`
	MinVersion uint64 `json:"min_version" doc:"oldest complete version; 0 before genesis"`
	Next       uint64 `json:"next_min_version" doc:"the same after the next cycle"`
	Versions   uint64 `json:"versions" doc:"that would be removed: those between, except genesis and changes of signers"`
	Checkpoint uint64 `json:"checkpoint,omitzero" doc:"size of the archived checkpoint that covers them"`
	Reason     string `json:"reason,omitzero" enum:"policy_none|not_due|not_ready|no_key|no_checkpoint" doc:"why no version is removed"`
}
