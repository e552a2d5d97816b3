package lookup

import (
	"errors"
	"time"

	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// verdict returns the outcome if it is decided. The caller holds mu.
func (l *lookup) verdict() (o Outcome, over bool) {
	out := l.left[0] > 0 || l.left[1] > 0 && (l.hedged || l.failed > 0) // a leg is running or will run
	switch {
	case len(l.heard) > 0:
		if l.IsName() || l.past || l.waiting <= 0 || !out {
			return l.found(), true
		}
	case l.denied:
		return l.nothing(), true
	case !out:
		return l.final(), true
	case !l.IsName() && l.hedged && l.left[1] == 0 && l.mostWithout():
		return l.nothing(), true // otherwise one dead peer would turn each miss into a timeout
	}
	return Outcome{}, false
}

// silent returns the number of peers without an answer: of all peers for a name, of the tried ones
// for a content id. The caller holds mu.
func (l *lookup) silent() int {
	switch {
	case l.denied:
		return 0
	case l.IsName():
		return len(l.Order) - len(l.without)
	}
	return l.asked + l.refused - len(l.without)
}

// mostWithout reports whether more peers answered "not found" than did not answer. Of a name with a
// sole owner, the answers of others say nothing. The caller holds mu.
func (l *lookup) mostWithout() bool { return !l.Sole && len(l.without) > l.silent() }

// final returns the outcome after every leg has ended without a good answer. The caller holds mu.
func (l *lookup) final() Outcome {
	switch {
	case l.asked == 0 && l.refused > 0:
		return Outcome{Err: peers.AllOpen(l.Order)}
	case l.silent() == 0 || l.mostWithout():
		return l.nothing()
	case !time.Now().Before(l.Deadline):
		return Outcome{Err: name.ErrTimeout}
	}
	return Outcome{Err: errors.Join(name.ErrUpstream, l.lastErr)}
}

// atDeadline returns the outcome at the deadline from the answers so far. The caller holds mu.
func (l *lookup) atDeadline() (o Outcome) {
	switch {
	case len(l.heard) > 0:
		o = l.found()
	case l.mostWithout():
		o = l.nothing()
	default:
		return Outcome{Err: name.ErrTimeout}
	}
	o.Late = true
	return o
}

// found returns the outcome of the good answers: for a name the first answer, for a content id all
// answers merged. It does not depend on their order. The caller holds mu.
func (l *lookup) found() Outcome {
	o := l.heard[0].Outcome
	n := o.Entry
	if l.IsName() {
		n.from = []*peers.Peer{l.heard[0].from}
		return o
	}
	n.from = make([]*peers.Peer, len(l.heard))
	sets := make([][]name.Provider, len(l.heard), len(l.heard)+1)
	for i, h := range l.heard {
		n.from[i], sets[i] = h.from, h.Entry.Providers
	}
	n.Providers = name.Cap(name.Merge(append(sets, l.Known)...))
	n.ETag = name.SetETag(n.Providers)
	o.Until = name.FirstExpiry(n.Providers)
	return o
}

// nothing returns the outcome "not found". It is cached for half the time if a peer did not answer.
// The caller holds mu.
func (l *lookup) nothing() Outcome {
	o := Outcome{
		Entry:   &Entry{Key: l.Text, Fence: l.Fence},
		TTL:     l.Neg,
		Without: l.without,
		Denied:  l.denied,
	}
	if silent := l.silent(); silent > 0 {
		o.Entry.Silent = &name.SilentError{Peers: silent}
		o.TTL /= 2
	}
	return o
}
