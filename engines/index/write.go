package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// note returns the audit row of a mutation.
func note(event string, by engines.Actor, corrID string) store.Event {
	n := store.Event{Event: event, Decision: "allow", CorrID: corrID, CapID: by.CapID, Principal: by.Principal}
	if by.UID != nil {
		n.UID = strconv.FormatUint(uint64(*by.UID), 10)
	}
	return n
}

// committed publishes a synced command: lookups of the touched keys that begin from now on see it.
// It runs in the committer and does not block.
func (e *Engine) committed(commit uint64, kind, key string, touched ...string) {
	for _, text := range touched {
		e.fences.bump(text)
	}
	e.synced.Store(commit)
	e.events.Publish(name.Event{Kind: kind, Key: key, At: e.now()})
}

// PutName sets the manifest of key and returns after the sync. created reports whether the key did
// not exist. The node need not have the bytes of the manifest. If the lane is full it returns
// flow.ErrBusy at once. If key is a version with another manifest it returns a *ConflictError, and
// if the name belongs to another node of the fleet a *ForeignNameError.
func (e *Engine) PutName(
	ctx context.Context, by engines.Actor, key name.Key, manifest b3.Digest, corrID string,
) (named name.Named, created bool, err error) {
	if key.IsZero() {
		return name.Named{}, false, &name.KeyError{Reason: "must not be empty"}
	}
	if manifest.IsZero() {
		return name.Named{}, false, &name.RecordError{Field: "manifest", Reason: "must not be zero"}
	}
	if err := e.peers.Load().Check(key, e.id); err != nil {
		return name.Named{}, false, err
	}
	cmd := tables.PutName{
		Key:      key,
		Manifest: manifest,
		Note:     note("index.name_put", by, corrID),
		Restored: e.restored(),
	}
	done, err := store.TryCommit(ctx, e.store, store.Work, cmd, func(d tables.Written) {
		e.committed(d.Commit, eventPut, key.String(), key.String())
	})
	return done.Named, done.Created, e.met(err)
}

// restored reports whether the file was once restored from a snapshot.
func (e *Engine) restored() bool { return e.store.Info().RestoredFrom != "" }

// DeleteName deletes key. A deleted version cannot be put with another manifest. It returns
// ErrNotFound if the key does not exist.
func (e *Engine) DeleteName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	cmd := tables.DeleteName{Key: key, Note: note("index.name_deleted", by, corrID), Restored: e.restored()}
	_, err := store.TryCommit(ctx, e.store, store.Work, cmd, func(d tables.Written) {
		e.committed(d.Commit, eventDeleted, key.String(), key.String())
	})
	return e.met(err)
}

// ForgetName removes the row of key from this node's file, even if it is damaged or a tombstone, so
// that the names of peers show again. The seq of the key starts again, and a version may be put
// with another manifest. It returns ErrNotFound if the file has no row of the key.
func (e *Engine) ForgetName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	cmd := tables.ForgetName{Key: key, Note: note("index.name_forgotten", by, corrID)}
	_, err := store.TryCommit(ctx, e.store, store.Work, cmd, func(d tables.Forgotten) {
		e.damage.forgetNames(d.Keys)
		e.committed(d.Commit, eventDeleted, key.String(), append(d.Keys, key.String())...)
	})
	return err
}

// Name reads a key of this node's file. It returns ErrNotFound if the key does not exist.
func (e *Engine) Name(ctx context.Context, key name.Key) (name.Named, error) {
	row, err := e.readName(ctx, key)
	if err == nil {
		err = e.waitSynced(ctx, row.Commit)
	}
	if err == nil && row.Deleted {
		err = name.ErrNotFound
	}
	return row.Named(key), err
}

// maxWalk bounds the rows that Names visits, so that its view is short even if most rows are
// tombstones.
const maxWalk = 2000

// Names lists the keys of this node's file that begin with prefix, after the key after, in byte
// order: at most limit, from at most maxWalk rows. It returns after all listed rows are synced.
// Damaged rows are listed by their keys.
func (e *Engine) Names(ctx context.Context, prefix, after string, limit int) (page name.NamePage, err error) {
	var last uint64
	err = e.store.View(ctx, func(r store.Reader) error {
		rows, at := 0, ""
		for key, raw := range r.Range(tables.NameBucket, []byte(max(prefix, after)), nil) {
			text := string(key)
			if !strings.HasPrefix(text, prefix) {
				return nil
			}
			if (len(page.Names) == limit || rows >= maxWalk) && at != "" {
				page.Next = at
				return nil
			}
			if text == after {
				continue
			}
			rows++
			if utf8.Valid(key) { // only valid text can be a page cursor
				at = text
			}
			row, err := tables.ParseName(key, raw)
			if err != nil {
				_ = e.met(err)
				page.Damaged = append(page.Damaged, text)
				continue
			}
			if last = max(last, row.Commit); !row.Deleted {
				k, _ := name.ParseKey(text) // tables.ParseName has parsed it
				page.Names = append(page.Names, row.Named(k))
			}
		}
		return nil
	})
	if err == nil {
		err = e.waitSynced(ctx, last)
	}
	return page, err
}

// Announce publishes at most MaxAnnouncements providers and returns after they are synced. A fault
// of one of them is in its Announced and does not affect the others.
func (e *Engine) Announce(
	ctx context.Context, by engines.Actor, list []name.Announcement, corrID string,
) ([]name.Announced, error) {
	if len(list) < 1 || len(list) > name.MaxAnnouncements {
		return nil, &name.RecordError{Field: "providers", Reason: fmt.Sprintf("must be 1 to %d", name.MaxAnnouncements)}
	}
	out := make([]name.Announced, len(list))
	return out, flow.Fan(ctx, len(list), func(ctx context.Context, i int) error { // usually one group of the committer
		raw, r, err := e.accept(&list[i])
		out[i] = name.Announced{CID: r.CID, Peer: r.Peer, ExpiresMS: r.ExpiresMS()}
		if err == nil {
			key, _ := r.Peer.Key()
			cmd := tables.Announce{
				CID:       r.CID,
				Peer:      [32]byte(key),
				Raw:       raw,
				AtMS:      r.AtMS,
				ExpiresMS: r.ExpiresMS(),
				Note:      note("index.announced", by, corrID),
			}
			_, err = store.Commit(ctx, e.store, store.Work, cmd, func(commit uint64) {
				e.committed(commit, eventAnnounced, r.CID.String(), cidText(r.CID))
			})
		}
		if _, wrong := errors.AsType[*name.RecordError](err); wrong {
			out[i].Err, err = err, nil
		}
		return err
	})
}

// accept verifies a signed record, or signs one for this node.
func (e *Engine) accept(a *name.Announcement) (raw []byte, r name.ProviderRecord, err error) {
	now := e.wall()
	if a.Record != nil {
		r, err = name.ParseProviderRecord(a.Record, now)
		return a.Record, r, err
	}
	r = name.ProviderRecord{
		CID:    a.CID,
		Addrs:  name.PlainAddrs(a.Addrs),
		Region: a.Region,
		AtMS:   now.UnixMilli(),
		TTLSec: int64(a.TTL / time.Second),
	}
	if a.TTL == 0 {
		r.TTLSec = int64(name.DefaultTTL / time.Second)
	}
	raw, err = r.Sign(e.key, now)
	return raw, r, err
}

// Withdraw removes the record of peer for cid; "" is this node. It returns ErrNotFound if it does
// not exist.
func (e *Engine) Withdraw(ctx context.Context, by engines.Actor, cid b3.Digest, peer name.PeerID, corrID string) error {
	if peer == "" {
		peer = e.id
	}
	key, ok := peer.Key()
	if !ok {
		return &name.RecordError{Field: "peer", Reason: "must be the id of an Ed25519 key"}
	}
	cmd := tables.Withdraw{CID: cid, Peer: [32]byte(key), Note: note("index.withdrawn", by, corrID)}
	_, err := store.TryCommit(ctx, e.store, store.Work, cmd, func(commit uint64) {
		e.committed(commit, eventWithdrawn, cid.String(), cidText(cid))
	})
	return err
}

// Identity returns the id and the public key with which this node signs.
func (e *Engine) Identity() (name.PeerID, ed25519.PublicKey) {
	return e.id, e.key.Public().(ed25519.PublicKey)
}

// readName reads the row of key, including a tombstone. The row may not be synced yet: see
// waitSynced. A damaged row is a [store.RowError].
func (e *Engine) readName(ctx context.Context, key name.Key) (row tables.NameRow, err error) {
	err = e.store.View(ctx, func(r store.Reader) error {
		var known bool
		if row, known = tables.Names.Get(r, key.String()); !known {
			return name.ErrNotFound
		}
		return nil
	})
	return row, e.met(err)
}

// readProviders reads the records of cid that have not expired, and the stamp of the newest one:
// see waitSynced. Damaged rows are skipped.
func (e *Engine) readProviders(ctx context.Context, cid b3.Digest) (out []name.Provider, last uint64, err error) {
	now := e.now().UnixMilli()
	bad := func(err error) { _ = e.met(err) }
	err = e.store.View(ctx, func(r store.Reader) error {
		tables.OfCID(r, cid, func(k tables.ProviderKey, row tables.ProviderRow) {
			if row.ExpiresMS <= now {
				return
			}
			record, err := name.StoredProviderRecord(row.Raw)
			if err != nil {
				bad(tables.RowError(tables.ProviderBucket, tables.ProviderKeys.Append(nil, k), err))
				return
			}
			last = max(last, row.Commit)
			p := name.ProviderOf(row.Raw, &record, now)
			p.Filed = true
			out = append(out, p)
		}, bad)
		return nil
	})
	return out, last, err
}

// waitSynced blocks until the command with this stamp is synced. A view shows the command slightly
// earlier.
func (e *Engine) waitSynced(ctx context.Context, commit uint64) error {
	for {
		at, moved := e.synced.Load()
		if commit <= at {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// purgeExpired removes a batch of expired records from the file, if there are any.
func (e *Engine) purgeExpired(ctx context.Context) error {
	due := false
	err := e.store.View(ctx, func(r store.Reader) error {
		for range r.Range(tables.ExpiryBucket, nil, tables.ExpiredBy(e.now().UnixNano())) {
			due = true
			break
		}
		return nil
	})
	if err != nil || !due {
		return err
	}
	done, err := store.TryCommit(ctx, e.store, store.Bulk, tables.Purge{Max: tables.MaxPurge}, func(p tables.Purged) {
		touched := make([]string, len(p.CIDs))
		for i, cid := range p.CIDs {
			touched[i] = cidText(cid)
		}
		e.committed(p.Commit, eventExpired, "", touched...)
	})
	if done.Damaged > 0 {
		e.m.damaged(done.Damaged)
		e.log.Error("row_corrupt", "bucket", tables.ExpiryBucket.Name, "rows", done.Damaged, "next",
			"they are dropped, and made again from the records")
		e.damage.repair.Store(true)
	}
	return err
}
