package front

import (
	"net/netip"
	"slices"
	"time"

	"ronbox/appliance/flow"
)

// outcome is how a connection's try for a slot ended.
type outcome int

const (
	admitted  outcome = iota
	overPerIP         // its address has as many as it may
	overTotal         // all slots are taken
)

// limits are the slots of a listener. perIP 0 is no limit.
type limits struct{ total, perIP, reserved int }

// connTable counts the connections of a listener against its limits. It never waits.
type connTable struct {
	mu       *flow.Mutex
	max      limits             // guarded by mu
	ordinary int                // slots taken; guarded by mu
	byIP     map[netip.Addr]int // ordinary slots by address; guarded by mu; only addresses that hold one
	reserved []*conn            // in reserved slots, oldest first; guarded by mu
}

func newConnTable(c *flow.Catalog, max limits) *connTable {
	return &connTable{mu: flow.NewMutex(c, serviceNode, flow.RankCounters), max: max, byIP: map[netip.Addr]int{}}
}

// setLimits changes the limits. Open connections stay.
func (t *connTable) setLimits(max limits) {
	t.mu.Lock()
	t.max = max
	t.mu.Unlock()
}

// acquire gives c an ordinary slot, or, to a probe that finds none, a reserved one; c.over is then the limit that was met.
func (t *connTable) acquire(c *conn, exempt, probe bool) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := admitted
	switch {
	case t.ordinary >= t.max.total:
		over = overTotal
	case t.max.perIP > 0 && !exempt && t.byIP[c.key] >= t.max.perIP:
		over = overPerIP
	default:
		t.ordinary++
		t.byIP[c.key]++
		return admitted
	}
	if !probe || len(t.reserved) >= t.max.reserved {
		return over
	}
	c.over = over
	t.reserved = append(t.reserved, c)
	return admitted
}

// acquireReserved gives c a reserved slot or one beyond, among the newcomers. over is the limit that was met.
func (t *connTable) acquireReserved(c *conn, over outcome) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.max.reserved == 0 || len(t.reserved) >= t.max.reserved+maxNewcomers {
		return false
	}
	c.over = over
	t.reserved = append(t.reserved, c)
	return true
}

// inReserve returns the connections in reserved slots, oldest first.
func (t *connTable) inReserve() []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.reserved)
}

// reserveFull reports whether no reserved slot is free.
func (t *connTable) reserveFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reserved) >= t.max.reserved
}

// evict takes c out of its reserved slot, unless it has sent a request.
func (t *connTable) evict(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.reserved, c)
	if i < 0 || !c.noteRequest() {
		return false
	}
	t.reserved = slices.Delete(t.reserved, i, i+1)
	return true
}

// release gives the slot of c back.
func (t *connTable) release(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.over != admitted {
		if i := slices.Index(t.reserved, c); i >= 0 {
			t.reserved = slices.Delete(t.reserved, i, i+1)
		}
		return
	}
	t.ordinary--
	if t.byIP[c.key]--; t.byIP[c.key] == 0 {
		delete(t.byIP, c.key)
	}
}

// open counts the connections.
func (t *connTable) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ordinary + len(t.reserved)
}

// A probe's client is given time for its first byte, even while a flood from its own address claims slot after slot: so
// many connections may stand beyond the reserved slots, and stay silent for so long, before they are evicted. A client on
// a machine that has no processor free takes a tenth of a second between the connection and its first byte.
const (
	firstByteGrace = 250 * time.Millisecond
	maxNewcomers   = 256
)

// makeRoom gives c, a probe's connection that met the limit over, a reserved slot, and returns the connections that were
// evicted for it: silent ones. It fails when every connection of the reserve is being served.
func (t *connTable) makeRoom(c *conn, over outcome) (in bool, evicted []*conn) {
	idle, young := splitSilent(t.inReserve(), time.Now())
	for _, old := range idle {
		if t.reserveFull() && old.evictable() && t.evict(old) {
			evicted = append(evicted, old)
		}
	}
	if t.acquireReserved(c, over) {
		return true, evicted
	}
	for _, old := range young {
		if old.evictable() && t.evict(old) {
			return t.acquireReserved(c, over), append(evicted, old)
		}
	}
	return false, evicted
}

// splitSilent returns the connections that have sent no whole request: idle are those with half a request, then those
// silent for longer than the grace; young are silent within it. Each the oldest first.
func splitSilent(all []*conn, now time.Time) (idle, young []*conn) {
	var silent []*conn
	for _, c := range all {
		switch {
		case c.requested.Load() || c.received.Load() == receivedWhole:
		case c.received.Load() == receivedPart:
			idle = append(idle, c)
		case now.Sub(c.since) > firstByteGrace:
			silent = append(silent, c)
		default:
			young = append(young, c)
		}
	}
	return append(idle, silent...), young
}
