package index

import (
	"bytes"
	"context"
	"errors"

	"ronbox/appliance/flow"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
)

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
			o, final = lookup.Outcome{Err: &name.RateError{Wait: wait}}, true
		}
	}
	switch {
	case !final:
		j.read = true
		return false
	case o.Entry != nil:
		e.finishFound(s, j, o, source)
	default:
		e.finish(s, j, o, "read")
	}
	return true
}

// syncedBy waits until a command is synced or the deadline of j passes.
func (e *Engine) syncedBy(ctx context.Context, j *job, commit uint64) error {
	if e.records.Synced(commit) {
		return nil
	}
	ctx, stop := context.WithDeadlineCause(ctx, j.Deadline, name.ErrTimeout)
	defer stop()
	return e.records.WaitSynced(ctx, commit)
}

// lookUpHere reads this node's file. final is false if peers are to be asked.
func (e *Engine) lookUpHere(
	ctx context.Context, s *settings, j *job,
) (o lookup.Outcome, source name.Source, final bool) {
	j.set = e.peers.Load()
	if !j.IsName() {
		return e.providersHere(ctx, s, j)
	}
	if j.by = j.set.OwnerOf(j.Key, e.id); j.by != nil {
		return e.ownedHere(ctx, s, j)
	}
	n := &lookup.Entry{Key: j.Text, Fence: j.Fence}
	row, err := e.records.Read(ctx, j.Key)
	if err == nil {
		err = e.syncedBy(ctx, j, row.Commit)
	}
	if err == nil && !row.Deleted {
		n.Found = true
		n.Manifest, n.ETag = row.Manifest, name.ETag(row.Manifest)
		n.Seq, n.Updated = row.Seq, row.UpdatedMS
		return lookup.Outcome{Entry: n, TTL: s.pace.TTL}, name.SourceLocal, true
	}
	if err != nil && !errors.Is(err, name.ErrNotFound) {
		return lookup.Outcome{Err: err}, "", true
	}
	j.Trusted = s.keysFor(j.Key)
	ask := err != nil && len(j.Trusted) > 0 && len(j.set.Peers) > 0 // a tombstone is final
	if ask && j.local {
		return lookup.Outcome{Err: name.ErrNotFound}, "", true // peers may know the key
	}
	return lookup.Outcome{Entry: n, TTL: s.pace.Neg}, name.SourceLocal, !ask
}

// ownedHere answers j, whose name another node owns. This node's own row of the name, if it has one
// from before, counts for nothing. A node that asks gets the kept record of the owner.
func (e *Engine) ownedHere(
	ctx context.Context, s *settings, j *job,
) (o lookup.Outcome, source name.Source, final bool) {
	j.Trusted = append(s.keysFor(j.Key), j.by.Key)
	j.kept = e.records.Kept(ctx, j.Key, j.by.Key)
	ask := len(j.set.Peers) > 0
	switch {
	case j.kept != nil && (j.local || !ask):
		// it is not cached: others ask the owner
		return lookup.Outcome{Entry: j.heldEntry(), Until: j.kept.ExpiresMS}, name.SourcePeer, true
	case ask && j.local:
		return lookup.Outcome{Err: name.ErrNotFound}, "", true
	}
	return lookup.Outcome{Entry: &lookup.Entry{Key: j.Text, Fence: j.Fence}, TTL: s.pace.Neg}, name.SourceLocal, !ask
}

// providersHere reads the providers of this node's file.
func (e *Engine) providersHere(
	ctx context.Context, s *settings, j *job,
) (o lookup.Outcome, source name.Source, final bool) {
	n := &lookup.Entry{Key: j.Text, Fence: j.Fence}
	known, last, err := e.records.Providers(ctx, j.CID)
	if err == nil {
		err = e.syncedBy(ctx, j, last)
	}
	if err != nil {
		return lookup.Outcome{Err: err}, "", true
	}
	j.Known = known
	ask := (len(j.Known) == 0 || j.fresh) && len(j.set.Peers) > 0
	switch {
	case len(j.Known) > 0 && (!ask || j.local):
		n.Found, n.Providers, n.ETag = true, name.Cap(j.Known), name.SetETag(j.Known)
		return lookup.Outcome{Entry: n, TTL: s.pace.TTL, Until: name.FirstExpiry(j.Known)}, name.SourceLocal, true
	case ask && j.local:
		return lookup.Outcome{Err: name.ErrNotFound}, "", true
	}
	return lookup.Outcome{Entry: n, TTL: s.pace.Neg}, name.SourceLocal, !ask
}

// asking returns the call of j with the peers to ask. A renewal asks the owner of the name alone.
func (j *job) asking() lookup.Call {
	c := j.Call
	if j.by != nil {
		c.Owner = j.by.Peer
		c.Sole = c.Owner != nil && len(c.Trusted) == 1
	}
	if h := j.kept; h != nil {
		c.Held = &lookup.Sighting{Signer: h.Signer, Seq: h.Seq, Manifest: h.Manifest, Until: h.ExpiresMS}
	}
	c.Order = j.set.OrderFor(c.Text, j.region, c.Owner)
	if j.renews && c.Owner != nil {
		c.Order = c.Order[:1]
	}
	return c
}

// fromHeld returns the kept record of the owner as the outcome of a lookup in which neither the
// owner nor a node with a newer record has answered.
func (j *job) fromHeld(s *settings, o lookup.Outcome) (lookup.Outcome, bool) {
	switch {
	case j.kept == nil, j.renews, o.Denied, o.Entry != nil && o.Entry.Found:
		return o, false
	case errors.Is(o.Err, flow.ErrCanceled), errors.Is(o.Err, flow.ErrAborted):
		return o, false
	}
	late := o.Late || errors.Is(o.Err, name.ErrTimeout)
	return lookup.Outcome{Entry: j.heldEntry(), TTL: s.pace.TTL, Until: j.kept.ExpiresMS, Late: late}, true
}

// heldEntry returns the kept record of the owner as an answer.
func (j *job) heldEntry() *lookup.Entry {
	h := j.kept
	return &lookup.Entry{
		Key:      j.Text,
		Fence:    j.Fence,
		Found:    true,
		Manifest: h.Manifest,
		ETag:     name.ETag(h.Manifest),
		Seq:      h.Seq,
		Record:   h.Raw,
		Seen:     []lookup.Sighting{{Signer: h.Signer, Seq: h.Seq, Manifest: h.Manifest, Until: h.ExpiresMS}},
	}
}

// learn hands the answer of the owner of j's name to the renewer.
func (e *Engine) learn(j *job, o *lookup.Outcome) {
	switch n := o.Entry; {
	case o.Denied:
		e.held.Forget(j.Text)
	case n.Found && len(n.Seen) > 0 && bytes.Equal(n.Seen[0].Signer[:], j.by.Key):
		end := min(n.Seen[0].Until, e.now().Add(siteTTL).UnixMilli())
		row := tables.HeldRow{Raw: n.Record, Signer: n.Seen[0].Signer, Seq: n.Seq, ExpiresMS: end}
		e.held.Learn(j.Text, row)
	}
}
