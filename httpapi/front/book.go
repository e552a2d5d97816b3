package front

import (
	"net/netip"
	"slices"

	"ronbox/appliance/flow"
)

// verdict says whether a connection gets a place.
type verdict int

const (
	letIn     verdict = iota
	overPerIP         // its address has as many as it may
	overTotal         // all places are taken
)

// limits are the places of a listener. perIP 0 is no limit.
type limits struct{ total, perIP, reserved int }

// book knows who holds which place of a listener. It never waits.
type book struct {
	mu   *flow.Mutex
	max  limits             // guarded by mu
	n    int                // ordinary places taken; guarded by mu
	byIP map[netip.Addr]int // ordinary places by address; guarded by mu; only addresses that hold one
	kept []*life            // in reserved places, oldest first; guarded by mu
}

func newBook(c *flow.Catalog, max limits) *book {
	return &book{mu: flow.NewMutex(c, serviceNode, flow.RankCounters), max: max, byIP: map[netip.Addr]int{}}
}

// set changes the limits. Who is inside stays.
func (b *book) set(max limits) {
	b.mu.Lock()
	b.max = max
	b.mu.Unlock()
}

// enter gives l an ordinary place, or, to a probe that finds none, a reserved one; then l.over says what was full.
func (b *book) enter(l *life, exempt, probe bool) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := letIn
	switch {
	case b.n >= b.max.total:
		v = overTotal
	case b.max.perIP > 0 && !exempt && b.byIP[l.key] >= b.max.perIP:
		v = overPerIP
	default:
		b.n++
		b.byIP[l.key]++
		return letIn
	}
	if !probe || len(b.kept) >= b.max.reserved {
		return v
	}
	l.over = v
	b.kept = append(b.kept, l)
	return letIn
}

// reserved are those in reserved places, oldest first.
func (b *book) reserved() []*life {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.kept)
}

// crowded tells whether no reserved place is free.
func (b *book) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.kept) >= b.max.reserved
}

// evict takes l out of its reserved place, unless it has asked for something.
func (b *book) evict(l *life) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.kept, l)
	if i < 0 || !l.ask() {
		return false
	}
	b.kept = slices.Delete(b.kept, i, i+1)
	return true
}

// squeeze puts l in a reserved place or beyond, among the newcomers. over says what was full.
func (b *book) squeeze(l *life, over verdict) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.max.reserved == 0 || len(b.kept) >= b.max.reserved+newcomers {
		return false
	}
	l.over = over
	b.kept = append(b.kept, l)
	return true
}

// leave gives the place of l back.
func (b *book) leave(l *life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.over != letIn {
		if i := slices.Index(b.kept, l); i >= 0 {
			b.kept = slices.Delete(b.kept, i, i+1)
		}
		return
	}
	b.n--
	if b.byIP[l.key]--; b.byIP[l.key] == 0 {
		delete(b.byIP, l.key)
	}
}

// open counts the connections.
func (b *book) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n + len(b.kept)
}
