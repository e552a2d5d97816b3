package node

import (
	"context"
	"time"

	"ronbox/appliance/unit"
)

// LedgerCloseRequest is the body of POST /admin/v1/ledger/close. It has one of Before and Keep.
type LedgerCloseRequest struct {
	Before string `json:"before,omitzero" doc:"records that are older than this time (RFC 3339) are closed"`
	Keep   string `json:"keep,omitzero" doc:"as before, as an age such as 400d"`
	OutDir string `json:"out_dir,omitzero" doc:"folder of the file on the node, absolute; absent: ledger.periods_dir"`
	Fast   bool   `json:"fast,omitzero" doc:"work without rests, and drop at once: payments become slower meanwhile"`
	DryRun bool   `json:"dry_run,omitzero" doc:"answer what would be closed, and close nothing"`
}

// Time returns the time before which records are closed, and the member with a fault.
func (r LedgerCloseRequest) Time(now time.Time) (at time.Time, field, fault string) {
	var d unit.Duration
	switch {
	case (r.Before == "") == (r.Keep == ""):
		return at, "before", "give either before or keep"
	case r.Keep == "":
		at, err := time.Parse(time.RFC3339Nano, r.Before)
		if err != nil {
			return at, "before", "must be a time such as 2026-01-01T00:00:00Z"
		}
		return at, "", ""
	}
	if err := d.UnmarshalText([]byte(r.Keep)); err != nil {
		return at, "keep", err.Error()
	}
	return now.Add(-d.D()), "", ""
}

// LedgerClosing is the body of GET /admin/v1/ledger/close: the closing under way, or one that
// failed and changed nothing. The answer to a dry run has the state planned.
type LedgerClosing struct {
	State   string    `json:"state" enum:"idle|planned|building|exporting|checking|copying|closing|dropping|failed"`
	Period  uint64    `json:"period,omitzero" min:"1"`
	FromSeq uint64    `json:"from_seq,omitzero" doc:"of a plan: its first record"`
	ToSeq   uint64    `json:"to_seq,omitzero" doc:"its last record"`
	ToAt    time.Time `json:"to_at,omitzero" doc:"of a plan: when that was written"`
	Done    uint64    `json:"done" doc:"records of the step; while copying parts of the file, while dropping rows"`
	Total   uint64    `json:"total"`
	File    string    `json:"file,omitzero"`
	DueAt   time.Time `json:"due_at,omitzero" doc:"when the next period is due to be closed by itself"`
	Error   string    `json:"error,omitzero" doc:"why it failed, or waits"`
	Reason  string    `json:"reason,omitzero" enum:"close_file_differs|close_no_room|archive_target" doc:"of the problem, if it has one"`
}

// LedgerClosing returns the state of the closing of a period.
func (c Client) LedgerClosing(ctx context.Context) (LedgerClosing, error) {
	return adminGet[LedgerClosing](ctx, c.Client, "ledger/close")
}

// CloseLedger begins to close a period of the ledger.
func (c Client) CloseLedger(ctx context.Context, r LedgerCloseRequest) (LedgerClosing, error) {
	return adminPost[LedgerClosing](ctx, c.Client, "ledger/close", r)
}

// CancelLedgerClose cancels the closing under way.
func (c Client) CancelLedgerClose(ctx context.Context) (LedgerClosing, error) {
	return adminPost[LedgerClosing](ctx, c.Client, "ledger/close/cancel", nil)
}
