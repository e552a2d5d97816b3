package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// Stored returns the manifest of a name in this node's file: that of the kept record of its owner
// or, without such a record, that of the row of the name. It asks no peer, and may be called before
// Recover. It returns ErrNotFound, or a [store.RowError] for a damaged row.
func (e *Engine) Stored(ctx context.Context, key name.Key) (b3.Digest, error) {
	var kept tables.HeldRow
	sound := false
	err := e.store.View(ctx, func(r store.Reader) error {
		kept, sound = tables.ReadHeld(r, key.String())
		return nil
	})
	if err != nil {
		return b3.Digest{}, err
	}
	if sound {
		record, _, err := name.ParseNameRecord(kept.Raw, key, []ed25519.PublicKey{kept.Signer[:]}, e.wall())
		if err != nil {
			return b3.Digest{}, fmt.Errorf("%w: the record of its owner: %w", name.ErrNotFound, err)
		}
		return record.Manifest, nil
	}
	row, err := e.readName(ctx, key)
	if err == nil && row.Deleted {
		err = name.ErrNotFound
	}
	return row.Manifest, err
}

// here answers j from this node's file. It returns false if peers are to be asked.
func (e *Engine) here(ctx context.Context, s *settings, j *job) (settled bool) {
	settled = true
	defer func() {
		if settled && j.call != nil {
			j.call.Fail(name.ErrInternal) // of a panic; else it was answered
		}
	}()
	o, source, final := e.lookUpHere(ctx, s, j)
	if !final && e.admit != nil && j.cost > 0 {
		if ok, wait := e.admit(j.from, j.cost); !ok {
			o, final = outcome{err: &name.RateError{Wait: wait}}, true
		}
	}
	switch {
	case !final:
		j.read = true
		return false
	case o.entry != nil:
		e.finishFound(s, j, o, source)
	default:
		e.finish(s, j, o, "read")
	}
	return true
}

// syncedBy waits until a command is synced or the deadline of j passes.
func (e *Engine) syncedBy(ctx context.Context, j *job, commit uint64) error {
	if at, _ := e.synced.Load(); commit <= at {
		return nil
	}
	ctx, stop := context.WithDeadlineCause(ctx, j.deadline, name.ErrTimeout)
	defer stop()
	return e.waitSynced(ctx, commit)
}

// lookUpHere reads this node's file. final is false if peers are to be asked.
func (e *Engine) lookUpHere(ctx context.Context, s *settings, j *job) (o outcome, source name.Source, final bool) {
	j.set = e.peers.Load()
	if !j.isName() {
		return e.providersHere(ctx, s, j)
	}
	if j.owner = j.set.OwnerOf(j.key, e.id); j.owner != nil {
		return e.ownedHere(ctx, s, j)
	}
	n := &entry{key: j.text, fence: j.fence}
	row, err := e.readName(ctx, j.key)
	if err == nil {
		err = e.syncedBy(ctx, j, row.Commit)
	}
	if err == nil && !row.Deleted {
		n.found = true
		n.manifest, n.etag = row.Manifest, name.ETag(row.Manifest)
		n.seq, n.updated = row.Seq, row.UpdatedMS
		return outcome{entry: n, ttl: s.ttl}, name.SourceLocal, true
	}
	if err != nil && !errors.Is(err, name.ErrNotFound) {
		return outcome{err: err}, "", true
	}
	j.trusted = s.keysFor(j.key)
	ask := err != nil && len(j.trusted) > 0 && len(j.set.Peers) > 0 // a tombstone is final
	if ask && j.local {
		return outcome{err: name.ErrNotFound}, "", true // peers may know the key
	}
	return outcome{entry: n, ttl: s.neg}, name.SourceLocal, !ask
}

// ownedHere answers j, whose name another node owns. This node's own row of the name, if it has one
// from before, counts for nothing. A node that asks gets the kept record of the owner.
func (e *Engine) ownedHere(ctx context.Context, s *settings, j *job) (o outcome, source name.Source, final bool) {
	j.trusted = append(s.keysFor(j.key), j.owner.Key)
	j.held = e.readHeld(ctx, j.key, j.owner.Key)
	ask := len(j.set.Peers) > 0
	switch {
	case j.held != nil && (j.local || !ask):
		// it is not cached: others ask the owner
		return outcome{entry: j.held.entry(j), until: j.held.ExpiresMS}, name.SourcePeer, true
	case ask && j.local:
		return outcome{err: name.ErrNotFound}, "", true
	}
	return outcome{entry: &entry{key: j.text, fence: j.fence}, ttl: s.neg}, name.SourceLocal, !ask
}

// providersHere reads the providers of this node's file.
func (e *Engine) providersHere(ctx context.Context, s *settings, j *job) (o outcome, source name.Source, final bool) {
	n := &entry{key: j.text, fence: j.fence}
	known, last, err := e.readProviders(ctx, j.cid)
	if err == nil {
		err = e.syncedBy(ctx, j, last)
	}
	if err != nil {
		return outcome{err: err}, "", true
	}
	j.known = known
	ask := (len(j.known) == 0 || j.fresh) && len(j.set.Peers) > 0
	switch {
	case len(j.known) > 0 && (!ask || j.local):
		n.found, n.providers, n.etag = true, name.Cap(j.known), name.SetETag(j.known)
		return outcome{entry: n, ttl: s.ttl, until: name.FirstExpiry(j.known)}, name.SourceLocal, true
	case ask && j.local:
		return outcome{err: name.ErrNotFound}, "", true
	}
	return outcome{entry: n, ttl: s.neg}, name.SourceLocal, !ask
}

// newLookup returns the lookup of j among the peers. A renewal asks the owner of the name alone.
func (e *Engine) newLookup(s *settings, j *job) *lookup {
	l := &lookup{e: e, s: s, j: j}
	if j.owner != nil {
		l.owner = j.owner.Peer
		l.sole = l.owner != nil && len(j.trusted) == 1
	}
	l.order = j.set.OrderFor(j.text, j.region, l.owner)
	if j.renews && l.owner != nil {
		l.order = l.order[:1]
	}
	return l
}

// fromHeld returns the kept record of the owner as the outcome of a lookup in which neither the
// owner nor a node with a newer record has answered.
func (j *job) fromHeld(s *settings, o outcome) (outcome, bool) {
	switch {
	case j.held == nil, j.renews, o.denied, o.entry != nil && o.entry.found:
		return o, false
	case errors.Is(o.err, flow.ErrCanceled), errors.Is(o.err, flow.ErrAborted):
		return o, false
	}
	late := o.late || errors.Is(o.err, name.ErrTimeout)
	return outcome{entry: j.held.entry(j), ttl: s.ttl, until: j.held.ExpiresMS, late: late}, true
}
