package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// known returns ErrNotFound if HEAD has not reached the version, and ErrPruned if retention has
// removed it. It goes by the published HEAD, because the file may hold a commit that is not synced
// yet.
func (e *Engine) known(v uint64) error {
	switch at := e.reach(); {
	case v == 0 || v > at.head:
		return fmt.Errorf("version %d: %w", v, ErrNotFound)
	case v < at.min:
		return fmt.Errorf("version %d: %w", v, ErrPruned)
	}
	return nil
}

// EntryBytes returns the exact bytes of the log entry of a version.
func (e *Engine) EntryBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := e.held(ctx, v); err != nil {
		return nil, err
	}
	raw, _, err := rowOf(ctx, e, entries, v)
	if err == nil && raw == nil {
		err = e.orGone(ctx, v, fmt.Errorf("entry of version %d is missing: %w", v, store.ErrCorrupt))
	}
	return raw, err
}

// entryAt reads and parses the log entry of a version.
func (e *Engine) entryAt(ctx context.Context, v uint64) (*record.Artifact, error) {
	raw, err := e.EntryBytes(ctx, v)
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
func (e *Engine) orPruned(v uint64, err error) error {
	if pruned := e.known(v); err != nil && errors.Is(pruned, ErrPruned) {
		return pruned
	}
	return err
}

// PayloadBytes returns the exact signed bytes of a version.
func (e *Engine) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := e.held(ctx, v); err != nil {
		return nil, err
	}
	p, err := e.payloadAt(ctx, v)
	if err != nil {
		return nil, e.orGone(ctx, v, err)
	}
	return p.Bytes(), nil
}

// Status returns the properties of a version that may change after its commit.
func (e *Engine) Status(ctx context.Context, v uint64) (VersionStatus, error) {
	err := e.known(v)
	if err != nil && !errors.Is(err, ErrPruned) {
		return VersionStatus{}, err
	}
	head, st := e.Head(), VersionStatus{Pruned: err != nil}
	if head.CheckpointSize >= v {
		st.CoveredBy = head.CheckpointSize
	}
	if st.Pruned || v == head.Head.Version {
		return st, nil
	}
	next, err := e.entryAt(ctx, v+1)
	if err == nil && next.Kind == record.KindSupersede {
		st.SupersededBy = v + 1
	}
	return st, err
}

// Version returns a committed version as an encoded document, with or without its items. Concurrent
// calls for the same document share one encoding. HEAD needs no read slot.
func (e *Engine) Version(ctx context.Context, v uint64, withItems bool) (Document, error) {
	if err := e.known(v); err != nil {
		return Document{}, err
	}
	key := docKey{version: v, withItems: withItems}
	if doc, ok := e.cache.doc(key); ok {
		return doc, nil
	}
	doc, err := e.docFlight.Do(ctx, key, struct{}{}, loadWithin, func(ctx context.Context) (Document, error) {
		doc, err := e.encodeVersion(ctx, v, withItems)
		if err == nil {
			e.cache.putDoc(key, doc)
		}
		return doc, err
	})
	if err != nil {
		return Document{}, e.orPruned(v, fmt.Errorf("version %d: %w", v, err))
	}
	return doc, nil
}

func (e *Engine) encodeVersion(ctx context.Context, v uint64, withItems bool) (Document, error) {
	entry, err := e.entryAt(ctx, v)
	if err != nil {
		return Document{}, err
	}
	payload, err := e.payloadAt(ctx, v)
	if err != nil {
		return Document{}, err
	}
	if payload.B3() != entry.PayloadB3 {
		return Document{}, fmt.Errorf("payload of version %d is not the one that its entry names: %w", v,
			store.ErrCorrupt)
	}
	epoch, err := e.epochAt(ctx, v)
	if err != nil {
		return Document{}, err
	}
	out := Version{
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
		items, err := e.itemsAt(ctx, v)
		if err != nil {
			return Document{}, err
		}
		out.Items = make([]jsontext.Value, 0, items.Len())
		for it := range items.All() {
			out.Items = append(out.Items, it.Bytes)
		}
	}
	return document.Encode(out), nil
}

// epochAt returns the epoch of the signer set in force after version v.
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

// maxDiff is the most versions between the ends of a diff.
const maxDiff = 1024

// Diff returns the delta from the items of version from to those of version to. Either may be the
// newer. Version 0 is the empty set.
func (e *Engine) Diff(ctx context.Context, from, to uint64) (Diff, error) {
	if max(from, to)-min(from, to) > maxDiff {
		return Diff{}, fmt.Errorf("%w: from %d to %d; at most %d apart", ErrRange, from, to, maxDiff)
	}
	for _, v := range []uint64{from, to} {
		if v == 0 {
			continue
		}
		if err := e.known(v); err != nil {
			return Diff{}, err
		}
	}
	old, err := e.itemsAt(ctx, from)
	if err != nil {
		return Diff{}, e.orPruned(from, fmt.Errorf("diff: %w", err))
	}
	now, err := e.itemsAt(ctx, to)
	if err != nil {
		return Diff{}, e.orPruned(to, fmt.Errorf("diff: %w", err))
	}
	put, remove := record.Diff(old, now)
	out := Diff{Put: make([]jsontext.Value, len(put)), Remove: remove}
	for i, it := range put {
		out.Put[i] = it.Bytes
	}
	return out, nil
}

// Signers returns the signer set of an epoch, 0 for the one in force, and the entry that installed
// it.
func (e *Engine) Signers(ctx context.Context, epoch uint64) (Signers, error) {
	head := e.Head()
	if epoch == 0 {
		epoch = head.Head.Epoch
	}
	if head.Head.Version == 0 {
		return Signers{}, fmt.Errorf("signers: %w: the log has no genesis yet", ErrNotFound)
	}
	if epoch > head.Head.Epoch {
		return Signers{}, fmt.Errorf("signers of epoch %d: %w", epoch, ErrNotFound)
	}
	var installed epochSet
	var entry []byte
	err := e.view(ctx, func(r store.Reader) error {
		installed, _ = epochs.Get(r, uint32(epoch))
		entry, _ = entries.Get(r, installed.version)
		return nil
	})
	if err != nil {
		return Signers{}, err
	}
	set, err := record.ParseSignerSet(installed.set)
	if err != nil {
		return Signers{}, fmt.Errorf("signers of epoch %d: %w", epoch, err)
	}
	return Signers{
		Epoch: epoch, Version: installed.version, SignerSetB3: set.B3(),
		SignerSet: set.Bytes(), Artifact: entry,
	}, nil
}

// maxAuditChain bounds a page of audit records.
const maxAuditChain = 1000

// Audit returns up to limit audit records from a sequence number on, beginning with 1. A limit
// outside 1..1000 counts as 1000.
func (e *Engine) Audit(ctx context.Context, from uint64, limit int) (AuditChain, error) {
	if limit < 1 || limit > maxAuditChain {
		limit = maxAuditChain
	}
	at := e.current.Load().audit // the file may hold records that are not synced yet
	page := AuditChain{Seq: at.Seq, B3: at.B3}
	from = max(from, 1)
	if from > at.Seq {
		return page, nil
	}
	err := e.view(ctx, func(r store.Reader) error {
		page.Records = page.Records[:0]
		for _, raw := range audits.Range(r, from, min(at.Seq, from+uint64(limit)-1)+1) {
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
func (e *Engine) itemsAt(ctx context.Context, v uint64) (record.Items, error) {
	items, _, known, err := e.knownItems(ctx, v)
	if known || err != nil {
		return items, err
	}
	return e.itemFlight.Do(ctx, v, struct{}{}, loadWithin, func(ctx context.Context) (record.Items, error) {
		release, err := e.readSlot(ctx)
		if err != nil {
			return record.Items{}, err
		}
		defer release()
		return e.materialise(ctx, v)
	})
}

// readSlot takes a slot for a read that replays a part of the log. The slots keep reads from
// starving the rest of the node. It does not queue: it tries readTries times.
func (e *Engine) readSlot(ctx context.Context) (release func(), err error) {
	err = e.reread.Do(ctx, func(context.Context) error {
		select {
		case e.readSlots <- struct{}{}:
			return nil
		default:
			e.m.backoff["read"](1)
			return errReadsBusy
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return func() { <-e.readSlots }, err
}

// rowOf reads one row of the file.
func rowOf[K, V any](ctx context.Context, e *Engine, t store.Table[K, V], k K) (v V, known bool, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		v, known = t.Get(r, k)
		return nil
	})
	return v, known, err
}

// view reads one consistent state of the file. fn must be short, must not wait, and may run again.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	err := e.store.View(ctx, fn)
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return err
}

// Errors of HeadIn.
var (
	errNoHead = errors.New("the registry has no version yet")
	errMoving = errors.New("a version of the registry is being committed")
)

// HeadIn returns HEAD as the transaction of r has it. r may be that of a command of another
// service, which so decides by the version that is in force when it is committed. HeadIn returns an
// error if there is no HEAD, if a version is committed in the same transaction, if the file is not
// the newest copy of its log or does not verify, or if the node follows another one that is not to
// be believed or has not signed for too long.
func (e *Engine) HeadIn(r store.Reader) (*HeadView, error) {
	head, _ := metaHead.Get(store.Foreign(r, service), keyHead)
	now := e.current.Load()
	switch {
	case head.Version == 0 || now == nil:
		return nil, errNoHead
	case head != now.view.Head:
		return nil, errMoving
	case e.guard.Load() != nil:
		return nil, e.guard.Load().err()
	case e.chainError.Load() != nil:
		return nil, &NotReadyError{Cause: CauseChainError}
	case e.follow != nil:
		if err := e.followOK(); err != nil {
			return nil, err
		}
	}
	return now.view, nil
}
