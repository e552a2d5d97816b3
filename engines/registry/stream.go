package registry

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Since returns up to limit committed versions after a version, in order.
func (e *Engine) Since(ctx context.Context, after uint64, limit int) (out []Update, err error) {
	head := e.Head().Head.Version
	if after >= head {
		return nil, nil
	}
	if err := e.known(after + 1); err != nil {
		return nil, err
	}
	for n, to := after+1, min(head, after+uint64(max(limit, 0))); n <= to; n += sinceSlice {
		slice, err := e.updates(ctx, n, min(to, n+sinceSlice-1))
		if err != nil {
			return nil, e.orPruned(n, err)
		}
		out = append(out, slice...)
	}
	return out, nil
}

// sinceSlice is the number of versions that one read transaction of Since covers.
const sinceSlice = 64

// updates rebuilds the events of versions from their entries and the audit records of their
// commits.
func (e *Engine) updates(ctx context.Context, from, to uint64) (out []Update, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		out = make([]Update, 0, to-from+1)
		for v, raw := range tables.Entries.Range(r, from, to+1) {
			entry, err := record.ParseEntry(raw)
			if err != nil {
				return fmt.Errorf("entry of version %d: %w", v, err)
			}
			ev := Update{
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

var errDetached = errors.New("publisher is not attached")

// runPublisher sends each new version to event streams, in order. It never delays the pipeline:
// events lost to lag are counted and skipped, because a stream that finds a gap goes on from HEAD.
func (e *Engine) runPublisher(ctx context.Context) error {
	sub := e.committed.Subscribe(taskPublisher)
	defer sub.Close()
	if err := e.tellHead(ctx); err != nil {
		return fmt.Errorf("tell of HEAD: %w", err)
	}
	e.board.Set(service, keyBusAttached, nil)
	defer e.board.Set(service, keyBusAttached, errDetached)
	return e.tellAll(ctx, sub)
}

// tellAll sends the versions of sub until the bus is closed or ctx ends.
func (e *Engine) tellAll(ctx context.Context, sub *flow.Subscription[Update]) error {
	for {
		ev, lagged, err := sub.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		if lagged > 0 {
			e.m.overflow(int(lagged))
		}
		e.tell(ctx, ev)
	}
}

// tellHead sends HEAD if it has moved while no publisher was attached.
func (e *Engine) tellHead(ctx context.Context) error {
	head := e.Head().Head.Version
	if head <= e.told.Load() {
		return nil
	}
	missed, err := e.updates(ctx, head, head)
	if err != nil {
		return err
	}
	e.tell(ctx, missed[0])
	return nil
}

// tell sends a version, unless it was sent before or updates are off.
func (e *Engine) tell(ctx context.Context, ev Update) {
	if ev.Version <= e.told.Load() || e.Emits() != nil {
		return
	}
	_, span := e.span(ctx, "emit_bus", ev.CorrID)
	span.about("", ev.Version, ev.PayloadB3)
	e.updated.Publish(ev)
	e.told.Store(ev.Version)
	span.end(nil)
}
