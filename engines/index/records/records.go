package records

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// Names in metrics and in the catalogue.
const (
	service = "index"
	worker  = "worker"
	janitor = "cache_janitor"
)

// Hub is told of changes.
type Hub interface {
	// Outdate makes lookups of key that begin from now on read it again. It does not block.
	Outdate(key string)
	// Publish tells of a change. It does not block.
	Publish(name.Event)
}

// Owners finds the owner of a name.
type Owners interface {
	// Check returns a *name.ForeignNameError if another node owns k.
	Check(k name.Key) error
	// Of returns the key of the other node that owns k, or nil; asked reports whether it can be
	// asked.
	Of(k name.Key) (owner ed25519.PublicKey, asked bool)
}

// Deps holds what Records use.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Metrics *obs.Metrics
	Log     hclog.Logger
	Now     func() time.Time // the clock of everything that is stored
	Wall    func() time.Time // the clock of signed records
	Hub     Hub
	Owners  Owners
}

// Records are the names and the providers of this node's file. Their methods are safe for
// concurrent use.
type Records struct {
	d       Deps
	synced  *flow.Watch[uint64] // stamp of the last synced command of the index
	damaged func(int)
	damage  damage
	key     ed25519.PrivateKey // set by Open
	id      name.PeerID
}

// New declares the buckets of the index. It does no I/O.
func New(d Deps) *Records {
	d.Store.Declare(service, tables.Buckets()...)
	return &Records{
		d:       d,
		damaged: d.Metrics.Counter("index_rows_corrupt_total", service),
		synced: flow.NewWatch(d.Catalog, flow.Spec{
			Service:   service,
			Name:      "synced",
			Producers: []string{flow.HTTP, janitor},
			Consumers: []string{worker, flow.HTTP},
			Doc:       "the last synced command of the index",
		}, uint64(0)),
	}
}

// Open takes the key with which this node signs. Nothing is written or synced before.
func (r *Records) Open(key ed25519.PrivateKey) {
	r.key = key
	r.id = name.PeerIDOf(key.Public().(ed25519.PublicKey))
	r.synced.Store(r.d.Store.Info().Seq)
}

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
func (r *Records) committed(commit uint64, kind, key string, touched ...string) {
	for _, text := range touched {
		r.d.Hub.Outdate(text)
	}
	r.synced.Store(commit)
	r.d.Hub.Publish(name.Event{Kind: kind, Key: key, At: r.d.Now()})
}

// PutName sets the manifest of key and returns after the sync. created reports whether the key did
// not exist. The node need not have the bytes of the manifest. If the lane is full it returns
// flow.ErrBusy at once. If key is a version with another manifest it returns a *ConflictError, and
// if the name belongs to another node of the fleet a *ForeignNameError.
func (r *Records) PutName(
	ctx context.Context, by engines.Actor, key name.Key, manifest b3.Digest, corrID string,
) (named name.Named, created bool, err error) {
	if key.IsZero() {
		return name.Named{}, false, &name.KeyError{Reason: "must not be empty"}
	}
	if manifest.IsZero() {
		return name.Named{}, false, &name.RecordError{Field: "manifest", Reason: "must not be zero"}
	}
	if err := r.d.Owners.Check(key); err != nil {
		return name.Named{}, false, err
	}
	cmd := tables.PutName{
		Key:      key,
		Manifest: manifest,
		Note:     note("index.name_put", by, corrID),
		Restored: r.restored(),
	}
	done, err := store.TryCommit(ctx, r.d.Store, store.Work, cmd, func(d tables.Written) {
		r.committed(d.Commit, name.EventPut, key.String(), key.String())
	})
	return done.Named, done.Created, r.met(err)
}

// restored reports whether the file was once restored from a snapshot.
func (r *Records) restored() bool { return r.d.Store.Info().RestoredFrom != "" }

// DeleteName deletes key. A deleted version cannot be put with another manifest. It returns
// ErrNotFound if the key does not exist.
func (r *Records) DeleteName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	cmd := tables.DeleteName{Key: key, Note: note("index.name_deleted", by, corrID), Restored: r.restored()}
	_, err := store.TryCommit(ctx, r.d.Store, store.Work, cmd, func(d tables.Written) {
		r.committed(d.Commit, name.EventDeleted, key.String(), key.String())
	})
	return r.met(err)
}

// ForgetName removes the row of key from this node's file, even if it is damaged or a tombstone, so
// that the names of peers show again. The seq of the key starts again, and a version may be put
// with another manifest. It returns ErrNotFound if the file has no row of the key.
func (r *Records) ForgetName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	cmd := tables.ForgetName{Key: key, Note: note("index.name_forgotten", by, corrID)}
	_, err := store.TryCommit(ctx, r.d.Store, store.Work, cmd, func(d tables.Forgotten) {
		r.damage.forgetNames(d.Keys)
		r.committed(d.Commit, name.EventDeleted, key.String(), append(d.Keys, key.String())...)
	})
	return err
}

// Name reads a key of this node's file. It returns ErrNotFound if the key does not exist.
func (r *Records) Name(ctx context.Context, key name.Key) (name.Named, error) {
	row, err := r.Read(ctx, key)
	if err == nil {
		err = r.WaitSynced(ctx, row.Commit)
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
func (r *Records) Names(ctx context.Context, prefix, after string, limit int) (page name.NamePage, err error) {
	var last uint64
	err = r.d.Store.View(ctx, func(v store.Reader) error {
		rows, at := 0, ""
		for key, raw := range v.Range(tables.NameBucket, []byte(max(prefix, after)), nil) {
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
				_ = r.met(err)
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
		err = r.WaitSynced(ctx, last)
	}
	return page, err
}

// Announce publishes at most MaxAnnouncements providers and returns after they are synced. A fault
// of one of them is in its Announced and does not affect the others.
func (r *Records) Announce(
	ctx context.Context, by engines.Actor, list []name.Announcement, corrID string,
) ([]name.Announced, error) {
	if len(list) < 1 || len(list) > name.MaxAnnouncements {
		return nil, &name.RecordError{Field: "providers", Reason: fmt.Sprintf("must be 1 to %d", name.MaxAnnouncements)}
	}
	out := make([]name.Announced, len(list))
	return out, flow.Fan(ctx, len(list), func(ctx context.Context, i int) error { // usually one group of the committer
		raw, p, err := r.accept(&list[i])
		out[i] = name.Announced{CID: p.CID, Peer: p.Peer, ExpiresMS: p.ExpiresMS()}
		if err == nil {
			key, _ := p.Peer.Key()
			cmd := tables.Announce{
				CID:       p.CID,
				Peer:      [32]byte(key),
				Raw:       raw,
				AtMS:      p.AtMS,
				ExpiresMS: p.ExpiresMS(),
				Note:      note("index.announced", by, corrID),
			}
			_, err = store.Commit(ctx, r.d.Store, store.Work, cmd, func(commit uint64) {
				r.committed(commit, name.EventAnnounced, p.CID.String(), name.ProvidersKey(p.CID))
			})
		}
		if _, wrong := errors.AsType[*name.RecordError](err); wrong {
			out[i].Err, err = err, nil
		}
		return err
	})
}

// accept verifies a signed record, or signs one for this node.
func (r *Records) accept(a *name.Announcement) (raw []byte, p name.ProviderRecord, err error) {
	now := r.d.Wall()
	if a.Record != nil {
		p, err = name.ParseProviderRecord(a.Record, now)
		return a.Record, p, err
	}
	p = name.ProviderRecord{
		CID:    a.CID,
		Addrs:  name.PlainAddrs(a.Addrs),
		Region: a.Region,
		AtMS:   now.UnixMilli(),
		TTLSec: int64(a.TTL / time.Second),
	}
	if a.TTL == 0 {
		p.TTLSec = int64(name.DefaultTTL / time.Second)
	}
	raw, err = p.Sign(r.key, now)
	return raw, p, err
}

// Withdraw removes the record of peer for cid; "" is this node. It returns ErrNotFound if it does
// not exist.
func (r *Records) Withdraw(
	ctx context.Context, by engines.Actor, cid b3.Digest, peer name.PeerID, corrID string,
) error {
	if peer == "" {
		peer = r.id
	}
	key, ok := peer.Key()
	if !ok {
		return &name.RecordError{Field: "peer", Reason: "must be the id of an Ed25519 key"}
	}
	cmd := tables.Withdraw{CID: cid, Peer: [32]byte(key), Note: note("index.withdrawn", by, corrID)}
	_, err := store.TryCommit(ctx, r.d.Store, store.Work, cmd, func(commit uint64) {
		r.committed(commit, name.EventWithdrawn, cid.String(), name.ProvidersKey(cid))
	})
	return err
}

// Read reads the row of key, including a tombstone. The row may not be synced yet: see WaitSynced.
// A damaged row is a [store.RowError].
func (r *Records) Read(ctx context.Context, key name.Key) (row tables.NameRow, err error) {
	err = r.d.Store.View(ctx, func(v store.Reader) error {
		var known bool
		if row, known = tables.Names.Get(v, key.String()); !known {
			return name.ErrNotFound
		}
		return nil
	})
	return row, r.met(err)
}

// Providers reads the records of cid that have not expired, and the stamp of the newest one: see
// WaitSynced. Damaged rows are skipped.
func (r *Records) Providers(ctx context.Context, cid b3.Digest) (out []name.Provider, last uint64, err error) {
	now := r.d.Now().UnixMilli()
	bad := func(err error) { _ = r.met(err) }
	err = r.d.Store.View(ctx, func(v store.Reader) error {
		tables.OfCID(v, cid, func(k tables.ProviderKey, row tables.ProviderRow) {
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

// Synced reports whether the command with this stamp is synced.
func (r *Records) Synced(commit uint64) bool {
	at, _ := r.synced.Load()
	return commit <= at
}

// WaitSynced blocks until the command with this stamp is synced. A view shows the command slightly
// earlier.
func (r *Records) WaitSynced(ctx context.Context, commit uint64) error {
	for {
		at, moved := r.synced.Load()
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

// Expire removes a batch of expired records from the file, if there are any.
func (r *Records) Expire(ctx context.Context) error {
	due := false
	err := r.d.Store.View(ctx, func(v store.Reader) error {
		for range v.Range(tables.ExpiryBucket, nil, tables.ExpiredBy(r.d.Now().UnixNano())) {
			due = true
			break
		}
		return nil
	})
	if err != nil || !due {
		return err
	}
	done, err := store.TryCommit(ctx, r.d.Store, store.Bulk, tables.Purge{Max: tables.MaxPurge}, func(p tables.Purged) {
		touched := make([]string, len(p.CIDs))
		for i, cid := range p.CIDs {
			touched[i] = name.ProvidersKey(cid)
		}
		r.committed(p.Commit, name.EventExpired, "", touched...)
	})
	if done.Damaged > 0 {
		r.damaged(done.Damaged)
		r.d.Log.Error("row_corrupt", "bucket", tables.ExpiryBucket.Name, "rows", done.Damaged, "next",
			"they are dropped, and made again from the records")
		r.damage.repair.Store(true)
	}
	return err
}
