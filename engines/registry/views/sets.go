package views

import (
	"context"
	"errors"
	"fmt"

	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Kept reads the stored items of a version. It stores them first if they are not.
func (rd *Reader) Kept(ctx context.Context, v uint64) (record.Items, error) {
	f, err := rd.nearest(ctx, v)
	if err != nil || f.version == v {
		return f.base, err
	}
	items, err := rd.Materialise(ctx, v)
	if err != nil {
		return items, err
	}
	if _, err := rd.KeepSet(ctx, v, items); err != nil {
		return items, err
	}
	f, err = rd.nearest(ctx, v)
	if err == nil && f.version != v {
		err = store.ErrCorrupt
	}
	return f.base, err
}

// Bounds of the deltas that a read of an old version replays. A set is stored when the versions
// since the last stored one have more bytes than it, so that stored sets at most about double the
// log.
const (
	MinSetGap = 64
	MaxSetGap = 4096
)

// KeepSet stores the items of a version, one command for each chunk. It returns the stored bytes.
func (rd *Reader) KeepSet(ctx context.Context, version uint64, items record.Items) (int64, error) {
	head, chunks := tables.PackSet(rd.Codec, items)
	for i, c := range chunks {
		put := tables.PutSet{Version: version, Part: uint16(i + 1), Packed: c}
		if i+1 == len(chunks) {
			put.Header = &head
		}
		if _, err := store.Commit(ctx, rd.store, store.Bulk, put); err != nil {
			return 0, fmt.Errorf("keep the items of version %d: %w", version, err)
		}
	}
	return head.Bytes, nil
}

// nearest returns the newest stored set at or below v, else the empty set before genesis. A damaged
// set is flagged and skipped: an older one and the versions above it yield the same items.
func (rd *Reader) nearest(ctx context.Context, v uint64) (fold, error) {
	first := rd.pub.Head().MinVersion
	for at := v; ; {
		var head tables.SetHeader
		var chunks [][]byte
		err := rd.View(ctx, func(r store.Reader) (err error) {
			at, head, chunks, err = tables.KeptSet(r, at)
			return err
		})
		var items record.Items
		switch {
		case err == nil && at == 0:
			return newFold(0, record.Items{}), nil
		case err == nil:
			items, err = tables.UnpackSet(rd.Codec, head, chunks)
		}
		switch {
		case err == nil:
			return newFold(at, items), nil
		case at <= max(first, 1) || !errors.Is(err, store.ErrCorrupt):
			return fold{}, fmt.Errorf("kept items of version %d: %w", at, err)
		}
		rd.flag(fmt.Errorf("kept items of version %d: %w", at, err))
		at--
	}
}
