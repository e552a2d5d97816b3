package appliance

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// maxAuditPage bounds one page of Audit.
const maxAuditPage = 1000

// Audit reads rows of the chain from seq on, or from the oldest that is kept.
func (n *Node) Audit(ctx context.Context, from uint64, limit int) (wire.AuditPage, error) {
	if limit < 1 || limit > maxAuditPage {
		limit = maxAuditPage
	}
	out, info := wire.AuditPage{Rows: []wire.AuditRow{}}, n.store.Info()
	err := n.store.View(ctx, func(r store.Reader) error {
		oldest, err := store.Audit(r, 0, 1)
		if err != nil || len(oldest) == 0 {
			return err
		}
		out.First = oldest[0].Seq
		rows, err := store.Audit(r, max(from, out.First), limit+1)
		for i, row := range rows {
			if i == limit {
				out.Next = row.Seq
				break
			}
			out.Rows = append(out.Rows, auditRow(row))
		}
		return err
	})
	out.Last, out.Head = info.AuditSeq, info.AuditHead.String()
	if rows := len(out.Rows); rows > 0 && out.Rows[rows-1].Seq > out.Last { // committed since Info was read
		out.Last, out.Head = out.Rows[rows-1].Seq, out.Rows[rows-1].Hash
	}
	return out, err
}

func auditRow(r store.AuditRow) wire.AuditRow {
	return wire.AuditRow{
		Seq: r.Seq, At: time.Unix(0, r.At).UTC(), Event: r.Event.Event, Decision: r.Decision, Reason: r.Reason, CorrID: r.CorrID,
		CapID: r.CapID, Principal: r.Principal, UID: r.UID, Detail: r.Detail, Prev: r.Prev.String(), Hash: r.Hash.String(),
	}
}

// SubscribeAudit gives a cursor over the rows written from now on. The caller closes it.
func (n *Node) SubscribeAudit(consumer string) *flow.Subscription[wire.AuditRow] {
	return n.audited.Subscribe(consumer)
}

// publishAudit is told by the committer of rows that are synced.
func (n *Node) publishAudit(rows []store.AuditRow) {
	for _, r := range rows {
		n.audited.Publish(auditRow(r))
	}
}
