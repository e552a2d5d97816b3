package index

import (
	"context"
	"crypto/ed25519"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/index/name"
)

// PutName sets the manifest of key and returns after the sync. created reports whether the key did
// not exist. The node need not have the bytes of the manifest. If the lane is full it returns
// flow.ErrBusy at once. If key is a version with another manifest it returns a *name.ConflictError,
// and if the name belongs to another node of the fleet a *name.ForeignNameError.
func (e *Engine) PutName(
	ctx context.Context, by engines.Actor, key name.Key, manifest b3.Digest, corrID string,
) (named name.Named, created bool, err error) {
	return e.records.PutName(ctx, by, key, manifest, corrID)
}

// DeleteName deletes key. A deleted version cannot be put with another manifest. It returns
// name.ErrNotFound if the key does not exist.
func (e *Engine) DeleteName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	return e.records.DeleteName(ctx, by, key, corrID)
}

// ForgetName removes the row of key from this node's file, even if it is damaged or a tombstone, so
// that the names of peers show again.
func (e *Engine) ForgetName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error {
	return e.records.ForgetName(ctx, by, key, corrID)
}

// Name reads a key of this node's file. It returns name.ErrNotFound if the key does not exist.
func (e *Engine) Name(ctx context.Context, key name.Key) (name.Named, error) {
	return e.records.Name(ctx, key)
}

// Names lists at most limit keys of this node's file that begin with prefix, after the key after,
// in byte order. Damaged rows are listed by their keys.
func (e *Engine) Names(ctx context.Context, prefix, after string, limit int) (name.NamePage, error) {
	return e.records.Names(ctx, prefix, after, limit)
}

// Announce publishes at most name.MaxAnnouncements providers and returns after they are synced. A
// fault of one of them is in its Announced and does not affect the others.
func (e *Engine) Announce(
	ctx context.Context, by engines.Actor, list []name.Announcement, corrID string,
) ([]name.Announced, error) {
	return e.records.Announce(ctx, by, list, corrID)
}

// Withdraw removes the record of peer for cid; "" is this node. It returns name.ErrNotFound if it
// does not exist.
func (e *Engine) Withdraw(ctx context.Context, by engines.Actor, cid b3.Digest, peer name.PeerID, corrID string) error {
	return e.records.Withdraw(ctx, by, cid, peer, corrID)
}

// Stored returns the manifest of a name in this node's file. It asks no peer, and may be called
// before Recover.
func (e *Engine) Stored(ctx context.Context, key name.Key) (b3.Digest, error) {
	return e.records.Stored(ctx, key)
}

// Identity returns the id and the public key with which this node signs.
func (e *Engine) Identity() (name.PeerID, ed25519.PublicKey) {
	return e.id, e.key.Public().(ed25519.PublicKey)
}

// hub tells lookups and subscribers of changes of the file.
type hub struct{ e *Engine }

func (h hub) Outdate(key string)    { h.e.answers.Outdate(key) }
func (h hub) Publish(ev name.Event) { h.e.events.Publish(ev) }

// owners are the owners of names as of now.
type owners struct{ e *Engine }

func (o owners) Check(k name.Key) error { return o.e.peers.Load().Check(k, o.e.id) }

func (o owners) Of(k name.Key) (key ed25519.PublicKey, asked bool) {
	by := o.e.peers.Load().OwnerOf(k, o.e.id)
	if by == nil {
		return nil, false
	}
	return by.Key, by.Peer != nil
}
