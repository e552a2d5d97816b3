package registry

import (
	"context"
	"fmt"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// known answers ErrNotFound for a version that HEAD has not reached, and ErrPruned for one that is gone. Only what was
// published is known: the file may be ahead by a commit whose sync has not ended.
func (e *Engine) known(v uint64) error {
	head := e.Head()
	switch {
	case v == 0 || v > head.Head.Version:
		return fmt.Errorf("version %d: %w", v, ErrNotFound)
	case v < head.MinVersion:
		return fmt.Errorf("version %d: %w", v, ErrPruned)
	}
	return nil
}

// EntryBytes gives the exact log entry of a version.
func (e *Engine) EntryBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := e.known(v); err != nil {
		return nil, err
	}
	var raw []byte
	err := e.view(ctx, func(r store.Reader) error {
		raw, _ = entries.Get(r, v)
		return nil
	})
	return raw, err
}

// PayloadBytes gives the exact signed bytes of a version.
func (e *Engine) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := e.known(v); err != nil {
		return nil, err
	}
	p, err := e.payloadAt(ctx, v)
	if err != nil {
		return nil, err
	}
	return p.Bytes(), nil
}

// Status gives what may change about a version after its commit.
func (e *Engine) Status(_ context.Context, v uint64) (VersionStatus, error) {
	return VersionStatus{}, e.known(v)
}

// Version gives a committed version as an encoded document, with or without its items.
func (e *Engine) Version(ctx context.Context, v uint64, withItems bool) (VersionDoc, error) {
	if err := e.known(v); err != nil {
		return VersionDoc{}, err
	}
	key := docKey{version: v, withItems: withItems}
	if doc, ok := e.cache.Load().doc(key); ok {
		return doc, nil
	}
	doc, err := e.encodeVersion(ctx, v, withItems)
	if err != nil {
		return VersionDoc{}, err
	}
	e.cache.Load().putDoc(key, doc)
	return doc, nil
}

func (e *Engine) encodeVersion(ctx context.Context, v uint64, withItems bool) (VersionDoc, error) {
	raw, err := e.EntryBytes(ctx, v)
	if err != nil {
		return VersionDoc{}, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return VersionDoc{}, fmt.Errorf("entry of version %d: %w", v, err)
	}
	payload, err := e.payloadAt(ctx, v)
	if err != nil {
		return VersionDoc{}, err
	}
	epoch, err := e.epochAt(ctx, v)
	if err != nil {
		return VersionDoc{}, err
	}
	o := objectWriter{}
	o.text("schema_version", payload.SchemaVersion)
	o.uint("version", v)
	if withItems {
		items, err := e.materialise(ctx, v)
		if err != nil {
			return VersionDoc{}, err
		}
		o.items(items)
	}
	o.text("payload_b3", entry.PayloadB3.String())
	o.approvals(entry.Approvals)
	o.text("prev_hash", entry.PrevHash.String())
	o.text("committed_at", entry.CommittedAt)
	o.text("hash", entry.Hash().String())
	o.text("kind", entry.Kind)
	o.text("items_root", payload.ItemsRoot)
	o.uint("epoch", epoch)
	body := o.line()
	return VersionDoc{Version: v, Body: body, ETag: etag(body)}, nil
}

func (o *objectWriter) items(items record.Items) {
	o.name("items")
	sep := byte('[')
	for it := range items.All() {
		o.b = append(append(o.b, sep), it.Bytes...)
		sep = ','
	}
	if items.Len() == 0 {
		o.b = append(o.b, '[')
	}
	o.b = append(o.b, ']')
}

func (o *objectWriter) approvals(given []record.Approval) {
	o.name("approvals")
	o.b = append(o.b, '[')
	for i, a := range given {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(o.b, a.Bytes()...)
	}
	o.b = append(o.b, ']')
}

// epochAt is the epoch of the signer set in force after version v.
func (e *Engine) epochAt(ctx context.Context, v uint64) (uint64, error) {
	var epoch uint64
	err := e.view(ctx, func(r store.Reader) error {
		for n, installed := range epochs.AllBack(r) {
			if installed.version <= v {
				epoch = uint64(n)
				break
			}
		}
		return nil
	})
	return epoch, err
}

// maxDiff is how many versions apart two ends of a diff may be.
const maxDiff = 1024

// Diff gives what turns the items of version from, 0 being the empty set, into those of version to.
func (e *Engine) Diff(ctx context.Context, from, to uint64) (Diff, error) {
	if from > to || to-from > maxDiff {
		return Diff{}, fmt.Errorf("%w: from %d to %d; at most %d apart, upwards", ErrRange, from, to, maxDiff)
	}
	if err := e.known(to); err != nil {
		return Diff{}, err
	}
	if from > 0 {
		if err := e.known(from); err != nil {
			return Diff{}, err
		}
	}
	old, err := e.materialise(ctx, from)
	if err != nil {
		return Diff{}, err
	}
	now, err := e.materialise(ctx, to)
	if err != nil {
		return Diff{}, err
	}
	put, remove := record.Diff(old, now)
	return Diff{Put: put, Remove: remove}, nil
}

// Signers gives the signer set of an epoch, 0 for the one in force, and the entry that installed it.
func (e *Engine) Signers(ctx context.Context, epoch uint64) (SignersDoc, error) {
	head := e.Head()
	if epoch == 0 {
		epoch = head.Head.Epoch
	}
	if epoch == 0 || epoch > head.Head.Epoch {
		return SignersDoc{}, fmt.Errorf("signers of epoch %d: %w", epoch, ErrNotFound)
	}
	var installed epochSet
	var entry []byte
	err := e.view(ctx, func(r store.Reader) error {
		installed, _ = epochs.Get(r, uint32(epoch))
		entry, _ = entries.Get(r, installed.version)
		return nil
	})
	if err != nil {
		return SignersDoc{}, err
	}
	set, err := record.ParseSignerSet(installed.set)
	if err != nil {
		return SignersDoc{}, fmt.Errorf("signers of epoch %d: %w", epoch, err)
	}
	return SignersDoc{Epoch: epoch, Version: installed.version, Set: set, Artifact: entry}, nil
}

// Since gives up to limit committed versions above after, in order, to replay a stream.
func (e *Engine) Since(ctx context.Context, after uint64, limit int) ([]Event, error) {
	head := e.Head()
	if after >= head.Head.Version {
		return nil, nil
	}
	if err := e.known(after + 1); err != nil {
		return nil, err
	}
	to := min(head.Head.Version, after+uint64(max(limit, 0)))
	out := make([]Event, 0, to-after)
	for n := after + 1; n <= to; n += sinceSlice {
		rows, err := e.eventRows(ctx, n, min(to, n+sinceSlice-1))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			ev, err := row.event()
			if err != nil {
				return nil, err
			}
			out = append(out, ev)
		}
	}
	return out, nil
}

// sinceSlice is how many versions one read transaction of a replay covers.
const sinceSlice = 64

// eventRow is what an event is made of again: the entry, and the audit record of its commit.
type eventRow struct{ entry, audit []byte }

func (e *Engine) eventRows(ctx context.Context, from, to uint64) ([]eventRow, error) {
	var rows []eventRow
	err := e.view(ctx, func(r store.Reader) error {
		rows = rows[:0]
		for _, raw := range entries.Range(r, from, to+1) {
			entry, err := record.ParseEntry(raw)
			if err != nil {
				return err
			}
			audit, _ := audits.Get(r, entry.AuditSeq+1) // an entry names the record before its own
			rows = append(rows, eventRow{entry: raw, audit: audit})
		}
		return nil
	})
	return rows, err
}

func (row eventRow) event() (Event, error) {
	entry, err := record.ParseEntry(row.entry)
	if err != nil {
		return Event{}, err
	}
	ev := Event{
		Version: entry.Version, PayloadB3: entry.PayloadB3, CommittedAt: entry.CommittedAt, Hash: entry.Hash(), Kind: entry.Kind,
	}
	if row.audit != nil {
		rec, err := record.ParseAudit(row.audit)
		if err != nil {
			return Event{}, err
		}
		ev.CorrID = rec.CorrID
	}
	return ev, nil
}
