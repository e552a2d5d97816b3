package records

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// Renewer keeps the records of owners. It is the only writer of index/held.
const Renewer = "renewer"

// renewEvery is the time between two renewals of a kept record.
const renewEvery = time.Hour

// maxHeld bounds the kept records. They take 8 MiB of the file at most. Beyond it, one of the owner
// with the most records is dropped, so that an owner of many names displaces its own alone.
const maxHeld = 4096

// Kept is a kept record that is valid now.
type Kept struct {
	tables.HeldRow
	Manifest b3.Digest
}

// Held keeps the records of names by their owners.
type Held struct {
	r       *Records
	learned *flow.Queue[ownerRecord] // of names that other nodes own
	tick    *flow.Ticker
	ask     func(context.Context, name.Key) error
}

// NewHeld declares the channels of the renewer. ask queues a lookup of a name that asks its owner
// alone. It may wait for room.
func NewHeld(r *Records, ask func(context.Context, name.Key) error) *Held {
	return &Held{
		r:   r,
		ask: ask,
		learned: flow.NewQueue[ownerRecord](r.d.Catalog, flow.Spec{
			Service:   service,
			Name:      "records_tx",
			Cap:       maxHeld,
			Policy:    "drop new",
			Producers: []string{worker},
			Consumers: []string{Renewer},
			Doc:       "records of names by their owners, to be kept; a dropped one is kept by a later lookup",
		}),
		tick: flow.Every(r.d.Catalog, flow.Spec{
			Service: service, Name: "renew_tick", Consumers: []string{Renewer}, Doc: "renewal of the kept records",
		}, renewEvery),
	}
}

// Task returns the task that keeps the records of owners.
func (h *Held) Task() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       Renewer,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.bulk"},
		Doc:        "keeps the records of names by their owners, and renews them every " + unit.Short(renewEvery),
		Run:        h.run,
	}
}

// Kept reads the record of a name that was kept for its owner. It returns nil if that is not valid
// now, is of an earlier owner, or is damaged.
func (r *Records) Kept(ctx context.Context, k name.Key, owner ed25519.PublicKey) *Kept {
	var row tables.HeldRow
	sound := false
	_ = r.d.Store.View(ctx, func(v store.Reader) error { // on an error the owner is asked
		row, sound = tables.ReadHeld(v, k.String())
		return nil
	})
	now := r.d.Now()
	if !sound || !bytes.Equal(row.Signer[:], owner) || row.ExpiresMS <= now.UnixMilli() {
		return nil
	}
	record, _, err := name.ParseNameRecord(row.Raw, k, []ed25519.PublicKey{owner}, r.d.Wall())
	if err != nil {
		return nil
	}
	return &Kept{row, record.Manifest}
}

// Stored returns the manifest of a name in this node's file: that of the kept record of its owner
// or, without such a record, that of the row of the name. It asks no peer, and may be called before
// Open. It returns ErrNotFound, or a [store.RowError] for a damaged row.
func (r *Records) Stored(ctx context.Context, key name.Key) (b3.Digest, error) {
	var kept tables.HeldRow
	sound := false
	err := r.d.Store.View(ctx, func(v store.Reader) error {
		kept, sound = tables.ReadHeld(v, key.String())
		return nil
	})
	if err != nil {
		return b3.Digest{}, err
	}
	if sound {
		record, _, err := name.ParseNameRecord(kept.Raw, key, []ed25519.PublicKey{kept.Signer[:]}, r.d.Wall())
		if err != nil {
			return b3.Digest{}, fmt.Errorf("%w: the record of its owner: %w", name.ErrNotFound, err)
		}
		return record.Manifest, nil
	}
	row, err := r.Read(ctx, key)
	if err == nil && row.Deleted {
		err = name.ErrNotFound
	}
	return row.Manifest, err
}

// ownerRecord is an answer of the owner of a name.
type ownerRecord struct {
	key string
	row tables.HeldRow // without Raw: the owner has no such name
}

// Learn hands a record by the owner of a name to the renewer. If its queue is full, a later lookup
// brings the record again.
func (h *Held) Learn(key string, row tables.HeldRow) { _ = h.learned.TrySend(ownerRecord{key, row}) }

// Forget tells the renewer that the owner has no such name. If its queue is full, the record
// expires.
func (h *Held) Forget(key string) { _ = h.learned.TrySend(ownerRecord{key: key}) }

// run keeps the records that lookups bring, and every renewEvery asks each owner again.
func (h *Held) run(ctx context.Context) error {
	defer h.tick.Stop()
	kept, err := h.keptRecords(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case got, ok := <-h.learned.C():
			if !ok {
				return nil // drained
			}
			err = h.hold(ctx, kept, got)
		case <-h.tick.C():
			err = h.renew(ctx, kept)
		}
		if err != nil {
			h.r.d.Log.Debug("records_not_kept", "reason", err.Error()) // a later lookup or renewal tries again
		}
	}
}

// keptRecords reads the kept records, without their bytes. A damaged one is dropped by the next
// renewal.
func (h *Held) keptRecords(ctx context.Context) (map[string]tables.HeldRow, error) {
	kept := map[string]tables.HeldRow{}
	err := h.r.d.Store.View(ctx, func(r store.Reader) error {
		clear(kept)
		for key := range r.Range(tables.HeldBucket, nil, nil) {
			row, _ := tables.ReadHeld(r, string(key))
			row.Raw = nil
			kept[string(key)] = row
		}
		return nil
	})
	return kept, err
}

// hold keeps a record unless the one that is kept is as good, or drops it. kept is owned by the
// renewer.
func (h *Held) hold(ctx context.Context, kept map[string]tables.HeldRow, got ownerRecord) error {
	was, known := kept[got.key]
	if got.row.Raw == nil {
		if !known {
			return nil
		}
		return h.drop(ctx, kept, []string{got.key})
	}
	if known && was.Signer == got.row.Signer && (was.Seq > got.row.Seq ||
		was.Seq == got.row.Seq && got.row.ExpiresMS < was.ExpiresMS+renewEvery.Milliseconds()/2) {
		return nil
	}
	cmd := tables.Hold{Key: got.key, Row: got.row}
	if !known && len(kept) >= maxHeld {
		cmd.Drop = []string{leastOf(kept)}
	}
	if _, err := store.TryCommit(ctx, h.r.d.Store, store.Bulk, cmd); err != nil {
		return err
	}
	for _, key := range cmd.Drop {
		delete(kept, key)
	}
	got.row.Raw = nil
	kept[got.key] = got.row
	return nil
}

// leastOf returns the key of the record that is dropped first: of the owner with the most records,
// the one that expires first.
func leastOf(kept map[string]tables.HeldRow) string {
	records := map[[32]byte]int{} // by owner
	for _, row := range kept {
		records[row.Signer]++
	}
	return slices.MinFunc(slices.Collect(maps.Keys(kept)), func(a, b string) int {
		x, y := kept[a], kept[b]
		return cmp.Or(cmp.Compare(records[y.Signer], records[x.Signer]), bytes.Compare(x.Signer[:], y.Signer[:]),
			cmp.Compare(x.ExpiresMS, y.ExpiresMS), cmp.Compare(a, b))
	})
}

// drop drops kept records.
func (h *Held) drop(ctx context.Context, kept map[string]tables.HeldRow, keys []string) error {
	for slice := range slices.Chunk(keys, tables.MaxPurge) {
		if _, err := store.TryCommit(ctx, h.r.d.Store, store.Bulk, tables.Hold{Drop: slice}); err != nil {
			return err
		}
		for _, key := range slice {
			delete(kept, key)
		}
	}
	return nil
}

// renew drops the records that have expired or are not by the owner of today, and queues lookups of
// the others. It waits for room in their queue.
func (h *Held) renew(ctx context.Context, kept map[string]tables.HeldRow) error {
	now := h.r.d.Now().UnixMilli()
	var gone []string
	var due []name.Key
	for _, text := range slices.Sorted(maps.Keys(kept)) {
		key, err := name.ParseKey(text)
		if err != nil { // of a damaged row
			gone = append(gone, text)
			continue
		}
		owner, asked := h.r.d.Owners.Of(key)
		row := kept[text]
		switch {
		case owner == nil || !bytes.Equal(owner, row.Signer[:]) || row.ExpiresMS <= now:
			gone = append(gone, text)
		case asked:
			due = append(due, key)
		}
	}
	if err := h.drop(ctx, kept, gone); err != nil {
		return err
	}
	for _, key := range due {
		if err := h.ask(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
