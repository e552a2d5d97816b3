package wire

import "time"

// EventAudit names the frames of GET /admin/v1/audit/stream that carry an AuditRow.
const EventAudit = "audit"

// AuditRow is one row of the node's audit chain: who did what, and how it was
// decided. It is also the data of an audit frame, whose id is its seq.
type AuditRow struct {
	Seq       uint64            `json:"seq" doc:"from 1, without gaps"`
	At        time.Time         `json:"at" doc:"to the nanosecond: the chain hashes it"`
	Event     string            `json:"event"`
	Decision  string            `json:"decision" enum:"allow|deny"`
	Reason    string            `json:"reason,omitzero"`
	CorrID    string            `json:"corr_id,omitzero"`
	CapID     string            `json:"cap_id,omitzero" doc:"id of the token"`
	Principal string            `json:"principal,omitzero"`
	UID       string            `json:"uid,omitzero" doc:"user id of a socket peer"`
	Detail    map[string]string `json:"detail,omitempty"`
	Prev      string            `json:"prev" format:"b3" doc:"b3 digest of the row before, zeros before row 1"`
	Hash      string            `json:"hash" format:"b3" doc:"b3 digest of this row as it is stored"`
}

// AuditPage is the body of GET /admin/v1/audit: rows from ?from= on, oldest
// first. The ring keeps First..Last; what is older is gone.
type AuditPage struct {
	Rows  []AuditRow `json:"rows"`
	First uint64     `json:"first" doc:"seq of the oldest row kept, 0 while there is none"`
	Last  uint64     `json:"last" doc:"seq of the newest row"`
	Next  uint64     `json:"next,omitzero" doc:"?from= of the next page"`
	Head  string     `json:"head" format:"b3" doc:"b3 digest of row Last"`
}

// AuditHello is the data of the first frame of an audit stream.
type AuditHello struct {
	Incarnation string `json:"incarnation"`
	Last        uint64 `json:"last" doc:"seq of the newest row"`
}

// AuditLagged is the data of a lagged frame of an audit stream: rows from..to
// were not sent; GET /admin/v1/audit?from= has them.
type AuditLagged struct {
	Missed uint64 `json:"missed"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Last   uint64 `json:"last"`
}
