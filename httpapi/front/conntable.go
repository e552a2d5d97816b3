package front

import (
	"net/netip"
	"slices"
	"time"

	"ronbox/appliance/flow"
)

// outcome is the result of a request for a slot.
type outcome int

const (
	admitted  outcome = iota
	overPerIP         // the address has all its slots
	overTotal         // all slots are in use
)

// limits are the slots of a listener. perIP 0 means no limit.
type limits struct{ total, perIP, reserved int }

// connTable enforces the limits of a listener's connections. It never waits.
type connTable struct {
	mu       *flow.Mutex
	max      limits             // guarded by mu
	ordinary int                // slots in use; guarded by mu
	byIP     map[netip.Addr]int // ordinary slots in use, by address; guarded by mu
	reserved []*conn            // connections in reserved slots, oldest first; guarded by mu
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

// acquire assigns an ordinary slot to c. If no ordinary slot is free, a probe gets a reserved slot,
// and c.over is set to the limit that was exceeded.
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

// acquireReserved assigns a reserved slot or a newcomer slot to c. over is the limit that was
// exceeded.
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

// reserveFull reports whether all reserved slots are in use.
func (t *connTable) reserveFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reserved) >= t.max.reserved
}

// evict removes c from its reserved slot, unless it has sent a request.
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

// release frees the slot of c.
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

// open returns the number of open connections.
func (t *connTable) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ordinary + len(t.reserved)
}

// A probe's client needs time for its first byte, even during a flood from its own address. So up
// to maxNewcomers connections may exist beyond the reserved slots, each silent for firstByteGrace,
// before they are evicted. On a machine without an idle processor a client takes a tenth of a
// second between connecting and its first byte.
const (
	firstByteGrace = 250 * time.Millisecond
	maxNewcomers   = 256
)

// makeRoom assigns a reserved slot to c, a probe's connection that exceeded the limit over. It
// returns the silent connections that were evicted for it. It fails if every connection in the
// reserve is being served.
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

// splitSilent returns the connections that have not sent a whole request, each list oldest first:
// in idle those that sent half a request, then those silent for longer than the grace; in young
// those silent within it.
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
