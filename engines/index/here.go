package index

import (
	"bytes"
	"context"
	"errors"

	"ronbox/appliance/flow"
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
	if e.records.Synced(commit) {
		return nil
	}
	ctx, stop := context.WithDeadlineCause(ctx, j.deadline, name.ErrTimeout)
	defer stop()
	return e.records.WaitSynced(ctx, commit)
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
	row, err := e.records.Read(ctx, j.key)
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
	j.held = e.records.Kept(ctx, j.key, j.owner.Key)
	ask := len(j.set.Peers) > 0
	switch {
	case j.held != nil && (j.local || !ask):
		// it is not cached: others ask the owner
		return outcome{entry: j.heldEntry(), until: j.held.ExpiresMS}, name.SourcePeer, true
	case ask && j.local:
		return outcome{err: name.ErrNotFound}, "", true
	}
	return outcome{entry: &entry{key: j.text, fence: j.fence}, ttl: s.neg}, name.SourceLocal, !ask
}

// providersHere reads the providers of this node's file.
func (e *Engine) providersHere(ctx context.Context, s *settings, j *job) (o outcome, source name.Source, final bool) {
	n := &entry{key: j.text, fence: j.fence}
	known, last, err := e.records.Providers(ctx, j.cid)
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
	return outcome{entry: j.heldEntry(), ttl: s.ttl, until: j.held.ExpiresMS, late: late}, true
}

// heldEntry returns the kept record of the owner as an answer.
func (j *job) heldEntry() *entry {
	h := j.held
	return &entry{
		key:      j.text,
		fence:    j.fence,
		found:    true,
		manifest: h.Manifest,
		etag:     name.ETag(h.Manifest),
		seq:      h.Seq,
		record:   h.Raw,
		seen:     []sighting{{h.Signer, h.Seq, h.Manifest, h.ExpiresMS}},
	}
}

// learn hands the answer of the owner of j's name to the renewer.
func (e *Engine) learn(j *job, o *outcome) {
	switch n := o.entry; {
	case o.denied:
		e.held.Forget(j.text)
	case n.found && len(n.seen) > 0 && bytes.Equal(n.seen[0].signer[:], j.owner.Key):
		end := min(n.seen[0].until, e.now().Add(siteTTL).UnixMilli())
		row := tables.HeldRow{Raw: n.record, Signer: n.seen[0].signer, Seq: n.seq, ExpiresMS: end}
		e.held.Learn(j.text, row)
	}
}
