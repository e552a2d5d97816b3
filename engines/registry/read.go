package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
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
	raw, _, err := rowOf(ctx, e, entries, v)
	if err == nil && raw == nil {
		err = e.orPruned(v, fmt.Errorf("entry of version %d is missing: %w", v, store.ErrCorrupt))
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

// orPruned is err, or that retention has taken version v while it was read.
func (e *Engine) orPruned(v uint64, err error) error {
	if pruned := e.known(v); err != nil && errors.Is(pruned, ErrPruned) {
		return pruned
	}
	return err
}

// PayloadBytes gives the exact signed bytes of a version.
func (e *Engine) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	if err := e.known(v); err != nil {
		return nil, err
	}
	p, err := e.payloadAt(ctx, v)
	if err != nil {
		return nil, e.orPruned(v, err)
	}
	return p.Bytes(), nil
}

// Status gives what may change about a version after its commit.
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

// Version returns a committed version as an encoded document, with or without its items. Callers that ask for the same document at
// the same time share one encoding of it. HEAD needs no read slot.
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
		return Document{}, fmt.Errorf("payload of version %d is not the one that its entry names: %w", v, store.ErrCorrupt)
	}
	epoch, err := e.epochAt(ctx, v)
	if err != nil {
		return Document{}, err
	}
	out := Version{
		SchemaVersion: payload.SchemaVersion, Version: v, PayloadB3: entry.PayloadB3, Approvals: entry.Approvals, PrevHash: entry.PrevHash,
		CommittedAt: entry.CommittedAt, Hash: entry.Hash(), Kind: entry.Kind, ItemsRoot: payload.ItemsRoot, Epoch: epoch,
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
	return newDocument(out), nil
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

// Diff gives what turns the items of version from into those of version to, whichever is the newer; 0 is the empty set.
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

// Signers gives the signer set of an epoch, 0 for the one in force, and the entry that installed it.
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
	return Signers{Epoch: epoch, Version: installed.version, SignerSetB3: set.B3(), SignerSet: set.Bytes(), Artifact: entry}, nil
}

// maxAuditChain bounds a page of audit records.
const maxAuditChain = 1000

// AuditChain is a run of the audit chain: canonical records in order, and the chain's head when they were read.
type AuditChain struct {
	Records []jsontext.Value `json:"records"`
	Seq     uint64           `json:"seq" doc:"of the last record of the chain"`
	B3      b3.Digest        `json:"b3" format:"b3" doc:"hash of that record"`
}

// Audit gives up to limit audit records from a sequence number on, 1 being the first. A limit outside 1..1000 is 1000.
func (e *Engine) Audit(ctx context.Context, from uint64, limit int) (AuditChain, error) {
	if limit < 1 || limit > maxAuditChain {
		limit = maxAuditChain
	}
	at := e.current.Load().audit // what was synced: the file may be ahead
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

// Since gives up to limit committed versions above after, in order, to replay a stream.
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

// sinceSlice is how many versions one read transaction of a replay covers.
const sinceSlice = 64

// updates makes the events of versions again, of their entries and the audit records of their commits.
func (e *Engine) updates(ctx context.Context, from, to uint64) (out []Update, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		out = make([]Update, 0, to-from+1)
		for v, raw := range entries.Range(r, from, to+1) {
			entry, err := record.ParseEntry(raw)
			if err != nil {
				return fmt.Errorf("entry of version %d: %w", v, err)
			}
			ev := Update{Version: v, PayloadB3: entry.PayloadB3, CommittedAt: entry.CommittedAt, Hash: entry.Hash(), Kind: entry.Kind}
			if raw, kept := audits.Get(r, entry.AuditSeq+1); kept { // an entry names the record before its own
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

// readTries is how often a place for a read is asked for before StorageBusy is told.
const readTries = 3

// readDelay is the wait between two tries: 50 to 100 ms, doubling, at most 2 s.
func readDelay(n int) time.Duration {
	return min(2*time.Second, (50*time.Millisecond+rand.N(50*time.Millisecond))<<n)
}

// errReadsBusy is returned when as many reads of old versions run as there are cores. It is store.ErrSlow, StorageBusy to a client.
var errReadsBusy = fmt.Errorf("as many reads of old versions run as the node allows: %w", store.ErrSlow)

// Bounds of the loads that readers of old versions share.
const (
	loadWithin = 10 * time.Second // of one load; a read has a shorter deadline, so that a load outlives its callers rather than fails them
	maxLoads   = 1 << 16          // as many as limits.inflight can admit, so that a load is refused by its read slot alone
)

// itemsAt returns the items of version v for a reader. Items of HEAD and cached items need no read slot. Callers that ask for the
// same old version at the same time share one load, which takes one slot.
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

// readSlot takes one of the places of reads that replay a part of the log, so that they cannot starve the rest of the node.
// It does not queue: it tries again after a while, and gives up after readTries.
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

// view reads one consistent state of the file. fn must be short and wait for nothing; it may run again.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	err := e.store.View(ctx, fn)
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return err
}
