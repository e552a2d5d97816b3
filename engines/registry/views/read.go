package views

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// known returns ErrNotFound if HEAD has not reached the version, and ErrPruned if retention has
// removed it. It goes by the published HEAD, because the file may hold a commit that is not synced
// yet.
func (rd *Reader) known(v uint64) error {
	switch at := rd.reach(); {
	case v == 0 || v > at.head:
		return fmt.Errorf("version %d: %w", v, document.ErrNotFound)
	case v < at.min:
		return fmt.Errorf("version %d: %w", v, document.ErrPruned)
	}
	return nil
}

// EntryBytes returns the exact bytes of the log entry of a version.
func (rd *Reader) EntryBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := rd.held(ctx, v); err != nil {
		return nil, err
	}
	raw, _, err := RowOf(ctx, rd, tables.Entries, v)
	if err == nil && raw == nil {
		err = rd.orGone(ctx, v, fmt.Errorf("entry of version %d is missing: %w", v, store.ErrCorrupt))
	}
	return raw, err
}

// EntryAt reads and parses the log entry of a version.
func (rd *Reader) EntryAt(ctx context.Context, v uint64) (*record.Artifact, error) {
	raw, err := rd.EntryBytes(ctx, v)
	if err != nil {
		return nil, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return nil, fmt.Errorf("entry of version %d: %w", v, err)
	}
	return entry, nil
}

// orPruned returns err, or ErrPruned if retention has removed version v meanwhile.
func (rd *Reader) orPruned(v uint64, err error) error {
	if pruned := rd.known(v); err != nil && errors.Is(pruned, document.ErrPruned) {
		return pruned
	}
	return err
}

// PayloadBytes returns the exact signed bytes of a version.
func (rd *Reader) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := rd.held(ctx, v); err != nil {
		return nil, err
	}
	p, err := rd.PayloadAt(ctx, v)
	if err != nil {
		return nil, rd.orGone(ctx, v, err)
	}
	return p.Bytes(), nil
}

// Status returns the properties of a version that may change after its commit.
func (rd *Reader) Status(ctx context.Context, v uint64) (document.VersionStatus, error) {
	err := rd.known(v)
	if err != nil && !errors.Is(err, document.ErrPruned) {
		return document.VersionStatus{}, err
	}
	head, st := rd.pub.Head(), document.VersionStatus{Pruned: err != nil}
	if head.CheckpointSize >= v {
		st.CoveredBy = head.CheckpointSize
	}
	if st.Pruned || v == head.Head.Version {
		return st, nil
	}
	next, err := rd.EntryAt(ctx, v+1)
	if err == nil && next.Kind == record.KindSupersede {
		st.SupersededBy = v + 1
	}
	return st, err
}

// Version returns a committed version as an encoded document, with or without its items. Concurrent
// calls for the same document share one encoding. HEAD needs no read slot.
func (rd *Reader) Version(ctx context.Context, v uint64, withItems bool) (document.Encoded, error) {
	if err := rd.known(v); err != nil {
		return document.Encoded{}, err
	}
	key := docKey{version: v, withItems: withItems}
	if doc, ok := rd.cache.doc(key); ok {
		return doc, nil
	}
	doc, err := rd.docFlight.Do(ctx, key, struct{}{}, loadWithin, func(ctx context.Context) (document.Encoded, error) {
		doc, err := rd.encodeVersion(ctx, v, withItems)
		if err == nil {
			rd.cache.putDoc(key, doc)
		}
		return doc, err
	})
	if err != nil {
		return document.Encoded{}, rd.orPruned(v, fmt.Errorf("version %d: %w", v, err))
	}
	return doc, nil
}

func (rd *Reader) encodeVersion(ctx context.Context, v uint64, withItems bool) (document.Encoded, error) {
	entry, err := rd.EntryAt(ctx, v)
	if err != nil {
		return document.Encoded{}, err
	}
	payload, err := rd.PayloadAt(ctx, v)
	if err != nil {
		return document.Encoded{}, err
	}
	if payload.B3() != entry.PayloadB3 {
		return document.Encoded{}, fmt.Errorf("payload of version %d is not the one that its entry names: %w", v,
			store.ErrCorrupt)
	}
	epoch, err := rd.epochAt(ctx, v)
	if err != nil {
		return document.Encoded{}, err
	}
	out := document.Version{
		SchemaVersion: payload.SchemaVersion,
		Version:       v,
		PayloadB3:     entry.PayloadB3,
		Approvals:     entry.Approvals,
		PrevHash:      entry.PrevHash,
		CommittedAt:   entry.CommittedAt,
		Hash:          entry.Hash(),
		Kind:          entry.Kind,
		ItemsRoot:     payload.ItemsRoot,
		Epoch:         epoch,
	}
	if withItems {
		items, err := rd.itemsAt(ctx, v)
		if err != nil {
			return document.Encoded{}, err
		}
		out.Items = make([]jsontext.Value, 0, items.Len())
		for it := range items.All() {
			out.Items = append(out.Items, it.Bytes)
		}
	}
	return document.Encode(out), nil
}

// epochAt returns the epoch of the signer set in force after version v.
func (rd *Reader) epochAt(ctx context.Context, v uint64) (uint64, error) {
	var epoch uint64
	err := rd.View(ctx, func(r store.Reader) error {
		for n, installed := range tables.Epochs.AllBack(r) {
			if installed.Version <= v {
				epoch = uint64(n)
				break
			}
		}
		return nil
	})
	return epoch, err
}

// maxDiff is the most versions between the ends of a diff.
const maxDiff = 1024

// Diff returns the delta from the items of version from to those of version to. Either may be the
// newer. Version 0 is the empty set.
func (rd *Reader) Diff(ctx context.Context, from, to uint64) (document.Diff, error) {
	if max(from, to)-min(from, to) > maxDiff {
		return document.Diff{}, fmt.Errorf("%w: from %d to %d; at most %d apart", document.ErrRange, from, to, maxDiff)
	}
	for _, v := range []uint64{from, to} {
		if v == 0 {
			continue
		}
		if err := rd.known(v); err != nil {
			return document.Diff{}, err
		}
	}
	old, err := rd.itemsAt(ctx, from)
	if err != nil {
		return document.Diff{}, rd.orPruned(from, fmt.Errorf("diff: %w", err))
	}
	now, err := rd.itemsAt(ctx, to)
	if err != nil {
		return document.Diff{}, rd.orPruned(to, fmt.Errorf("diff: %w", err))
	}
	put, remove := record.Diff(old, now)
	out := document.Diff{Put: make([]jsontext.Value, len(put)), Remove: remove}
	for i, it := range put {
		out.Put[i] = it.Bytes
	}
	return out, nil
}

// Signers returns the signer set of an epoch, 0 for the one in force, and the entry that installed
// it.
func (rd *Reader) Signers(ctx context.Context, epoch uint64) (document.Signers, error) {
	head := rd.pub.Head()
	if epoch == 0 {
		epoch = head.Head.Epoch
	}
	if head.Head.Version == 0 {
		return document.Signers{}, fmt.Errorf("signers: %w: the log has no genesis yet", document.ErrNotFound)
	}
	if epoch > head.Head.Epoch {
		return document.Signers{}, fmt.Errorf("signers of epoch %d: %w", epoch, document.ErrNotFound)
	}
	var installed tables.EpochSet
	var entry []byte
	err := rd.View(ctx, func(r store.Reader) error {
		installed, _ = tables.Epochs.Get(r, uint32(epoch))
		entry, _ = tables.Entries.Get(r, installed.Version)
		return nil
	})
	if err != nil {
		return document.Signers{}, err
	}
	set, err := record.ParseSignerSet(installed.Set)
	if err != nil {
		return document.Signers{}, fmt.Errorf("signers of epoch %d: %w", epoch, err)
	}
	return document.Signers{
		Epoch: epoch, Version: installed.Version, SignerSetB3: set.B3(),
		SignerSet: set.Bytes(), Artifact: entry,
	}, nil
}

// maxAuditChain bounds a page of audit records.
const maxAuditChain = 1000

// Audit returns up to limit audit records from a sequence number on, beginning with 1. A limit
// outside 1..1000 counts as 1000.
func (rd *Reader) Audit(ctx context.Context, from uint64, limit int) (document.AuditChain, error) {
	if limit < 1 || limit > maxAuditChain {
		limit = maxAuditChain
	}
	at := rd.pub.State.Load().Audit // the file may hold records that are not synced yet
	page := document.AuditChain{Seq: at.Seq, B3: at.B3}
	from = max(from, 1)
	if from > at.Seq {
		return page, nil
	}
	err := rd.View(ctx, func(r store.Reader) error {
		page.Records = page.Records[:0]
		for _, raw := range tables.Audits.Range(r, from, min(at.Seq, from+uint64(limit)-1)+1) {
			page.Records = append(page.Records, raw)
		}
		return nil
	})
	return page, err
}

// readTries is the number of tries for a read slot before errReadsBusy is returned.
const readTries = 3

// readDelay returns the wait between two tries: 50 to 100 ms, doubling, at most 2 s.
func readDelay(n int) time.Duration {
	return min(2*time.Second, (50*time.Millisecond+rand.N(50*time.Millisecond))<<n)
}

// errReadsBusy is returned when as many reads of old versions run as there are cores. It is
// store.ErrSlow, StorageBusy to a client.
var errReadsBusy = fmt.Errorf("as many reads of old versions run as the node allows: %w", store.ErrSlow)

// Bounds of the loads that readers of old versions share.
const (
	// of one load; a read has a shorter deadline, so that a load outlives its callers instead of
	// failing them
	loadWithin = 10 * time.Second
	// as many as limits.inflight can admit, so that only the read slot refuses a load
	maxLoads = 1 << 16
)

// itemsAt returns the items of version v for a reader. Items of HEAD and cached items need no read
// slot. Concurrent calls for the same old version share one load, which takes one slot.
func (rd *Reader) itemsAt(ctx context.Context, v uint64) (record.Items, error) {
	items, _, known, err := rd.knownItems(ctx, v)
	if known || err != nil {
		return items, err
	}
	return rd.itemFlight.Do(ctx, v, struct{}{}, loadWithin, func(ctx context.Context) (record.Items, error) {
		release, err := rd.readSlot(ctx)
		if err != nil {
			return record.Items{}, err
		}
		defer release()
		return rd.Materialise(ctx, v)
	})
}

// readSlot takes a slot for a read that replays a part of the log. The slots keep reads from
// starving the rest of the node. It does not queue: it tries readTries times.
func (rd *Reader) readSlot(ctx context.Context) (release func(), err error) {
	err = rd.reread.Do(ctx, func(context.Context) error {
		if !rd.readSlots.TryAcquire() {
			rd.counts.Backoff(1)
			return errReadsBusy
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		rd.counts.Timeouts(1)
	}
	return rd.readSlots.Release, err
}

// RowOf reads one row of the file.
func RowOf[K, V any](ctx context.Context, e *Reader, t store.Table[K, V], k K) (v V, known bool, err error) {
	err = e.View(ctx, func(r store.Reader) error {
		v, known = t.Get(r, k)
		return nil
	})
	return v, known, err
}

// View reads one consistent state of the file. fn must be short, must not wait, and may run again.
func (rd *Reader) View(ctx context.Context, fn func(store.Reader) error) error {
	err := rd.store.View(ctx, fn)
	if errors.Is(err, context.DeadlineExceeded) {
		rd.counts.Timeouts(1)
	}
	return err
}
