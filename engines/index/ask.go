package index

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
	l.e.m.legs.Add(1)
	o, err := l.call(ctx, p)
	l.e.m.legs.Add(-1)
	l.mu.Lock()
	delete(l.calls, p)
	l.mu.Unlock()
	took := time.Since(begun)
	switch {
	case err == nil, errors.Is(err, name.ErrNotFound):
		p.Settle(pass, flow.Succeeded, nil)
		if took < l.s.hedge {
			p.OnTime()
		}
		if err == nil {
			l.addAnswer(o, p, wave)
			return nil
		}
		l.book(p, err)
		return err
	case ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), errDeadline) && took >= l.s.fair:
		err = name.ErrPeerTimeout
	case l.overtaken(took):
		err = errOvertaken
	default: // the call lost a race or had too little time, or the node stops: it does not count against the peer
		p.Settle(pass, flow.Neither, nil)
		return context.Cause(ctx)
	}
	p.Settle(pass, flow.Failed, err)
	l.e.m.peerErrors[kindOf(err)](1)
	l.book(p, err)
	return err
}

// overtaken reports whether a call that took out was beaten by a later call of the second wave. It
// counts as a failure: otherwise a hanging peer would lose each race unnoticed and delay each
// lookup by the hedge time.
func (l *lookup) overtaken(out time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overtook && out >= l.s.hedge
}

// noteLate notes the peers that the settled lookup has awaited until about the hedge time although
// others had answered. A slow peer may be far away, so this is not a failure. It is noted before
// the lookup is answered, and not at the end of the call, so that the next lookup knows it. The
// caller holds mu.
func (l *lookup) noteLate() {
	if len(l.heard) == 0 || l.j.isName() {
		return
	}
	for p, begun := range l.calls {
		out := time.Since(begun)
		if out >= l.s.hedge*9/10 && !(l.overtook && out >= l.s.hedge) { // an overtaken call fails
			p.Miss(l.asOf.Add(l.s.lateFor))
		}
	}
}

// call asks p and returns its answer as an entry. For a content id the entry holds only the answer
// of p.
func (l *lookup) call(ctx context.Context, p *peers.Peer) (outcome, error) {
	n := &entry{key: l.j.text, fence: l.j.fence, found: true}
	if !l.j.isName() {
		list, err := p.Providers(ctx, l.j.cid, askLimit)
		if err != nil {
			return outcome{}, err
		}
		good, bad := l.e.verified(l.j.cid, list, l.s, l.asOf)
		l.e.m.integrity(bad)
		switch {
		case len(good) == 0 && bad > 0:
			return outcome{}, name.ErrInvalid
		case len(good) == 0:
			return outcome{}, name.ErrNotFound
		}
		n.providers = good
		return outcome{entry: n, ttl: l.s.ttl}, nil
	}
	raw, err := p.Name(ctx, l.j.key)
	if err != nil {
		return outcome{}, err
	}
	r, signer, err := name.ParseNameRecord(raw, l.j.key, l.j.trusted, l.e.wall())
	if err == nil {
		err = l.compare(n, &r, [32]byte(signer))
	}
	if err != nil {
		l.e.m.integrity(1)
		return outcome{}, errors.Join(name.ErrInvalid, err)
	}
	n.manifest, n.etag = r.Manifest, name.ETag(r.Manifest)
	n.seq, n.record = r.Seq, raw
	return outcome{entry: n, ttl: l.s.ttl, until: r.ExpiresMS}, nil
}

var errOlder = &name.RecordError{Field: "seq", Reason: "is lower than that of an earlier record"}

// compare compares the record of a name with earlier records. It refuses a record that is older
// than the last one of the same signer, or that has another manifest at the same seq. A different
// manifest by another trusted signer is a conflict, and not the fault of either peer.
func (l *lookup) compare(n *entry, r *name.NameRecord, signer [32]byte) error {
	n.seen = []sighting{{signer, r.Seq, r.Manifest, r.ExpiresMS}}
	if h := l.j.held; h != nil && h.Signer == signer &&
		(r.Seq < h.Seq || r.Seq == h.Seq && r.Manifest != h.Manifest) {
		return errOlder
	}
	old, ok := l.e.past(l.j.text, l.e.now())
	if !ok {
		return nil
	}
	now := l.e.now().UnixMilli()
	for _, was := range old.seen {
		switch {
		case was.until <= now:
		case was.signer != signer:
			n.seen = append(n.seen, was)
			if was.manifest != r.Manifest {
				n.conflict = was.manifest
			}
		case r.Seq < was.seq || r.Seq == was.seq && r.Manifest != was.manifest:
			return errOlder
		}
	}
	// concurrent lookups may use the same entry
	if !n.conflict.IsZero() && old.conflict.IsZero() && !old.disputed.Swap(true) {
		l.e.m.conflicts(1)
		l.e.log.Warn("name_conflict", "key", l.j.key.String(), "manifest", r.Manifest.String(), "other",
			n.conflict.String(), "next", "two keys of index.trust sign this name: remove one of them")
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
func (e *Engine) verified(
	cid b3.Digest,
	list []name.Provider,
	s *settings,
	asOf time.Time,
) (out []name.Provider, bad int) {
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
			p.AtMS, p.ExpiresMS = asOf.UnixMilli(), asOf.Add(2*s.ttl+s.staleFor).UnixMilli()
			out = append(out, p)
			continue
		}
		r, err := name.ParseProviderRecord(list[i].Record, e.wall())
		if err != nil || r.CID != cid {
			bad++
			continue
		}
		out = append(out, name.ProviderOf(list[i].Record, &r, asOf.UnixMilli()))
	}
	return out, bad
}
