package lookup

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// ask makes one call and records its outcome. It returns nil for a good answer and ErrNotFound for
// an empty one.
func (l *lookup) ask(ctx context.Context, p *peers.Peer, pass flow.Pass, wave int) error {
	begun := time.Now()
	l.mu.Lock()
	l.calls[p] = begun
	l.raced = l.raced || wave == 1
	l.mu.Unlock()
	l.m.legs.Add(1)
	o, err := l.call(ctx, p)
	l.m.legs.Add(-1)
	l.mu.Lock()
	delete(l.calls, p)
	l.mu.Unlock()
	took := time.Since(begun)
	switch {
	case err == nil, errors.Is(err, name.ErrNotFound):
		p.Settle(pass, flow.Succeeded, nil)
		if took < l.Hedge {
			p.OnTime()
		}
		if err == nil {
			l.addAnswer(o, p, wave)
			return nil
		}
		l.book(p, err)
		return err
	case ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), errDeadline) && took >= l.Fair:
		err = name.ErrPeerTimeout
	case l.overtaken(took):
		err = errOvertaken
	default: // the call lost a race or had too little time, or the node stops: it does not count against the peer
		p.Settle(pass, flow.Neither, nil)
		return context.Cause(ctx)
	}
	p.Settle(pass, flow.Failed, err)
	l.m.peerErrors[kindOf(err)](1)
	l.book(p, err)
	return err
}

// overtaken reports whether a call that took out was beaten by a later call of the second wave. It
// counts as a failure: otherwise a hanging peer would lose each race unnoticed and delay each
// lookup by the hedge time.
func (l *lookup) overtaken(out time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overtook && out >= l.Hedge
}

// noteLate notes the peers that the settled lookup has awaited until about the hedge time although
// others had answered. A slow peer may be far away, so this is not a failure. It is noted before
// the lookup is answered, and not at the end of the call, so that the next lookup knows it. The
// caller holds mu.
func (l *lookup) noteLate() {
	if len(l.heard) == 0 || l.IsName() {
		return
	}
	for p, begun := range l.calls {
		out := time.Since(begun)
		if out >= l.Hedge*9/10 && !(l.overtook && out >= l.Hedge) { // an overtaken call fails
			p.Miss(l.asOf.Add(l.LateFor))
		}
	}
}

// call asks p and returns its answer as an entry. For a content id the entry holds only the answer
// of p.
func (l *lookup) call(ctx context.Context, p *peers.Peer) (Outcome, error) {
	n := &Entry{Key: l.Text, Fence: l.Fence, Found: true}
	if !l.IsName() {
		list, err := p.Providers(ctx, l.CID, askLimit)
		if err != nil {
			return Outcome{}, err
		}
		good, bad := l.verified(l.CID, list)
		l.m.integrity(bad)
		switch {
		case len(good) == 0 && bad > 0:
			return Outcome{}, name.ErrInvalid
		case len(good) == 0:
			return Outcome{}, name.ErrNotFound
		}
		n.Providers = good
		return Outcome{Entry: n, TTL: l.TTL}, nil
	}
	raw, err := p.Name(ctx, l.Key)
	if err != nil {
		return Outcome{}, err
	}
	r, signer, err := name.ParseNameRecord(raw, l.Key, l.Trusted, l.wall())
	if err == nil {
		err = l.compare(n, &r, [32]byte(signer))
	}
	if err != nil {
		l.m.integrity(1)
		return Outcome{}, errors.Join(name.ErrInvalid, err)
	}
	n.Manifest, n.ETag = r.Manifest, name.ETag(r.Manifest)
	n.Seq, n.Record = r.Seq, raw
	return Outcome{Entry: n, TTL: l.TTL, Until: r.ExpiresMS}, nil
}

var errOlder = &name.RecordError{Field: "seq", Reason: "is lower than that of an earlier record"}

// compare compares the record of a name with earlier records. It refuses a record that is older
// than the last one of the same signer, or that has another manifest at the same seq. A different
// manifest by another trusted signer is a conflict, and not the fault of either peer.
func (l *lookup) compare(n *Entry, r *name.NameRecord, signer [32]byte) error {
	n.Seen = []Sighting{{signer, r.Seq, r.Manifest, r.ExpiresMS}}
	if h := l.Held; h != nil && h.Signer == signer &&
		(r.Seq < h.Seq || r.Seq == h.Seq && r.Manifest != h.Manifest) {
		return errOlder
	}
	old, ok := l.answers.Past(l.Text, l.now())
	if !ok {
		return nil
	}
	now := l.now().UnixMilli()
	for _, was := range old.Seen {
		switch {
		case was.Until <= now:
		case was.Signer != signer:
			n.Seen = append(n.Seen, was)
			if was.Manifest != r.Manifest {
				n.Conflict = was.Manifest
			}
		case r.Seq < was.Seq || r.Seq == was.Seq && r.Manifest != was.Manifest:
			return errOlder
		}
	}
	// concurrent lookups may use the same entry
	if !n.Conflict.IsZero() && old.Conflict.IsZero() && !old.disputed.Swap(true) {
		l.m.conflicts(1)
		l.log.Warn("name_conflict", "key", l.Key.String(), "manifest", r.Manifest.String(), "other",
			n.Conflict.String(), "next", "two keys of index.trust sign this name: remove one of them")
	}
	return nil
}

// errOvertaken is the error of a call that was still running when the second wave won.
var errOvertaken = errors.New("was overtaken by a peer that was asked later")

// kindOf returns the class of a peer's error.
func kindOf(err error) string {
	switch {
	case errors.Is(err, name.ErrTransient):
		return "transient"
	case errors.Is(err, name.ErrNoRoute):
		return "no_route"
	case errors.Is(err, name.ErrPeerTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errOvertaken):
		return "overtaken"
	}
	return "invalid"
}

// verified returns the valid providers of a peer's answer about cid: records signed by their own
// key for this id, and unsigned providers with an id and addresses. It takes the first MaxHeard in
// the order of the peer. bad counts invalid ones. All answers of one lookup count as received at
// asOf, so that their order does not matter.
func (l *lookup) verified(cid b3.Digest, list []name.Provider) (out []name.Provider, bad int) {
	for i := range list[:min(len(list), name.MaxProviders)] {
		if len(out) == name.MaxHeard {
			break
		}
		if list[i].Record == nil {
			p, ok := name.Unsigned(&list[i])
			if !ok {
				bad++
				continue
			}
			p.AtMS, p.ExpiresMS = l.asOf.UnixMilli(), l.asOf.Add(2*l.TTL+l.StaleFor).UnixMilli()
			out = append(out, p)
			continue
		}
		r, err := name.ParseProviderRecord(list[i].Record, l.wall())
		if err != nil || r.CID != cid {
			bad++
			continue
		}
		out = append(out, name.ProviderOf(list[i].Record, &r, l.asOf.UnixMilli()))
	}
	return out, bad
}

// Probe asks a peer with a half-open breaker for an id that no node has, so that the breaker closes
// without traffic.
func (a *Asker) Probe(ctx context.Context, p *peers.Peer, deadline time.Time) {
	pass, ok := p.Breaker.Permit()
	if !ok {
		return
	}
	ctx, stop := context.WithDeadline(ctx, deadline)
	defer stop()
	_, err := p.Providers(ctx, emptyID, 1)
	switch {
	case err == nil, errors.Is(err, name.ErrNotFound):
		p.Settle(pass, flow.Succeeded, nil)
	case ctx.Err() != nil && time.Now().Before(deadline): // the node stops
		p.Settle(pass, flow.Neither, nil)
	default:
		p.Settle(pass, flow.Failed, err)
		a.m.peerErrors[kindOf(err)](1)
	}
}

// emptyID is the BLAKE3 of no bytes, a valid id that no peer provides.
var emptyID = b3.Sum(nil)
