package index

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"maps"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// taskRenewer keeps the records of owners. It is the only writer of index/held.
const taskRenewer = "renewer"

// maxHeld bounds the kept records. They take 8 MiB of the file at most. Beyond it, one of the owner
// with the most records is dropped, so that an owner of many names displaces its own alone.
const maxHeld = 4096

// held is a kept record that is valid now.
type held struct {
	tables.HeldRow
	manifest b3.Digest
}

// entry returns the record as an answer to j.
func (h *held) entry(j *job) *entry {
	return &entry{
		key: j.text, fence: j.fence, found: true, manifest: h.manifest, etag: name.ETag(h.manifest), seq: h.Seq,
		record: h.Raw, seen: []sighting{{h.Signer, h.Seq, h.manifest, h.ExpiresMS}},
	}
}

// readHeld reads the kept record of a name by an owner. It returns nil if there is none that is
// valid now: the record of an earlier owner and a damaged row count as none.
func (e *Engine) readHeld(ctx context.Context, k name.Key, owner ed25519.PublicKey) *held {
	var row tables.HeldRow
	sound := false
	_ = e.store.View(ctx, func(r store.Reader) error { // on an error the owner is asked
		row, sound = tables.ReadHeld(r, k.String())
		return nil
	})
	now := e.now()
	if !sound || !bytes.Equal(row.Signer[:], owner) || row.ExpiresMS <= now.UnixMilli() {
		return nil
	}
	record, _, err := name.ParseNameRecord(row.Raw, k, []ed25519.PublicKey{owner}, e.wall())
	if err != nil {
		return nil
	}
	return &held{row, record.Manifest}
}

// ownerRecord is what the owner of a name has answered.
type ownerRecord struct {
	key string
	row tables.HeldRow // without Raw: the owner has no such name
}

// learn hands the answer of the owner of j's name to the renewer.
func (e *Engine) learn(j *job, o *outcome) {
	switch n := o.entry; {
	case o.denied:
		_ = e.records.TrySend(ownerRecord{key: j.text}) // if it is full, the record expires
	case n.found && len(n.seen) > 0 && bytes.Equal(n.seen[0].signer[:], j.owner.Key):
		end := min(n.seen[0].until, e.now().Add(siteTTL).UnixMilli())
		row := tables.HeldRow{Raw: n.record, Signer: n.seen[0].signer, Seq: n.seq, ExpiresMS: end}
		_ = e.records.TrySend(ownerRecord{j.text, row})
	}
}

// runRenewer keeps the records that lookups bring, and every renewEvery asks each owner again.
func (e *Engine) runRenewer(ctx context.Context) error {
	defer e.renewTick.Stop()
	kept, err := e.keptRecords(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case got, ok := <-e.records.C():
			if !ok {
				return nil // drained
			}
			err = e.hold(ctx, kept, got)
		case <-e.renewTick.C():
			err = e.renew(ctx, kept)
		}
		if err != nil {
			e.log.Debug("records_not_kept", "reason", err.Error()) // a later lookup or renewal tries again
		}
	}
}

// keptRecords reads the kept records, without their bytes. A damaged one is dropped by the next
// renewal.
func (e *Engine) keptRecords(ctx context.Context) (map[string]tables.HeldRow, error) {
	kept := map[string]tables.HeldRow{}
	err := e.store.View(ctx, func(r store.Reader) error {
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
func (e *Engine) hold(ctx context.Context, kept map[string]tables.HeldRow, got ownerRecord) error {
	was, known := kept[got.key]
	if got.row.Raw == nil {
		if !known {
			return nil
		}
		return e.drop(ctx, kept, []string{got.key})
	}
	if known && was.Signer == got.row.Signer && (was.Seq > got.row.Seq ||
		was.Seq == got.row.Seq && got.row.ExpiresMS < was.ExpiresMS+renewEvery.Milliseconds()/2) {
		return nil
	}
	cmd := tables.Hold{Key: got.key, Row: got.row}
	if !known && len(kept) >= maxHeld {
		cmd.Drop = []string{leastOf(kept)}
	}
	if _, err := store.TryCommit(ctx, e.store, store.Bulk, cmd); err != nil {
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
func (e *Engine) drop(ctx context.Context, kept map[string]tables.HeldRow, keys []string) error {
	for slice := range slices.Chunk(keys, tables.MaxPurge) {
		if _, err := store.TryCommit(ctx, e.store, store.Bulk, tables.Hold{Drop: slice}); err != nil {
			return err
		}
		for _, key := range slice {
			delete(kept, key)
		}
	}
	return nil
}

// renew drops the records that have expired or are not by the owner of today, and queues lookups of
// the others. It waits for room in bg_tx.
func (e *Engine) renew(ctx context.Context, kept map[string]tables.HeldRow) error {
	set, now := e.peers.Load(), e.now().UnixMilli()
	var gone []string
	var due []name.Key
	for _, text := range slices.Sorted(maps.Keys(kept)) {
		key, err := name.ParseKey(text)
		if err != nil { // of a damaged row
			gone = append(gone, text)
			continue
		}
		by := set.OwnerOf(key, e.id)
		row := kept[text]
		switch {
		case by == nil || !bytes.Equal(by.Key, row.Signer[:]) || row.ExpiresMS <= now:
			gone = append(gone, text)
		case by.Peer != nil:
			due = append(due, key)
		}
	}
	if err := e.drop(ctx, kept, gone); err != nil {
		return err
	}
	for _, key := range due {
		if err := e.bg.Send(ctx, &job{text: key.String(), key: key, fresh: true, renews: true}); err != nil {
			return err
		}
	}
	return nil
}

// declareFleet declares the channels of the renewer.
func (e *Engine) declareFleet() {
	e.records = flow.NewQueue[ownerRecord](e.catalog, flow.Spec{
		Service:   service,
		Name:      "records_tx",
		Cap:       maxHeld,
		Policy:    "drop new",
		Producers: []string{taskWorker},
		Consumers: []string{taskRenewer},
		Doc:       "records of names by their owners, to be kept; a dropped one is kept by a later lookup",
	})
	e.renewTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "renew_tick", Consumers: []string{taskRenewer}, Doc: "renewal of the kept records",
	}, renewEvery)
}

// renewer returns the task that keeps the records of owners.
func (e *Engine) renewer() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       taskRenewer,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.bulk"},
		Doc:        "keeps the records of names by their owners, and renews them every " + renewEvery.String(),
		Run:        e.runRenewer,
	}
}

// renewEvery is the time between two renewals of a kept record.
const renewEvery = time.Hour
