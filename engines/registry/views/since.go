package views

import (
	"context"
	"fmt"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Since returns up to limit committed versions after a version, in order.
func (rd *Reader) Since(ctx context.Context, after uint64, limit int) (out []document.Update, err error) {
	head := rd.pub.Head().Head.Version
	if after >= head {
		return nil, nil
	}
	if err := rd.known(after + 1); err != nil {
		return nil, err
	}
	for n, to := after+1, min(head, after+uint64(max(limit, 0))); n <= to; n += sinceSlice {
		slice, err := rd.Updates(ctx, n, min(to, n+sinceSlice-1))
		if err != nil {
			return nil, rd.orPruned(n, err)
		}
		out = append(out, slice...)
	}
	return out, nil
}

// sinceSlice is the number of versions that one read transaction of Since covers.
const sinceSlice = 64

// Updates rebuilds the events of versions from their entries and the audit records of their
// commits.
func (rd *Reader) Updates(ctx context.Context, from, to uint64) (out []document.Update, err error) {
	err = rd.View(ctx, func(r store.Reader) error {
		out = make([]document.Update, 0, to-from+1)
		for v, raw := range tables.Entries.Range(r, from, to+1) {
			entry, err := record.ParseEntry(raw)
			if err != nil {
				return fmt.Errorf("entry of version %d: %w", v, err)
			}
			ev := document.Update{
				Version: v, PayloadB3: entry.PayloadB3, CommittedAt: entry.CommittedAt,
				Hash: entry.Hash(), Kind: entry.Kind,
			}
			if raw, kept := tables.Audits.Get(r, entry.AuditSeq+1); kept { // an entry names the record before its own
				rec, err := record.ParseAudit(raw)
				if err != nil {
					return fmt.Errorf("audit record %d: %w", entry.AuditSeq+1, err)
				}
				ev.CorrID = rec.CorrID
			}
			out = append(out, ev)
		}
		return nil
	})
	if err == nil && uint64(len(out)) < to-from+1 {
		err = fmt.Errorf("entries from version %d on are missing: %w", from, store.ErrCorrupt)
	}
	return out, err
}
