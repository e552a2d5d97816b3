package front

import (
	"io"
	"net/http"
	"net/netip"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/limit"
)

// Limits of discarding the bodies of refused requests. Closing a connection with unread bytes
// resets it. A client that sends all of its body before it reads would then lose the answer.
const (
	// of one body: half of the largest possible server.max_body_bytes
	dropBytes      = 32 << 20
	dropFor        = 5 * time.Second // 32 MiB need 54 Mbit/s; slower clients are reset
	dropPerNetwork = 16              // connections; a browser opens 6
	dropSmall      = 256 << 10       // net/http reads a shorter rest itself, and may keep the connection
)

// drops holds the connections with a body that is being discarded.
type drops struct {
	lasts     time.Duration // of one body
	mu        *flow.Mutex
	byNetwork map[netip.Addr]int // guarded by mu; only networks with such connections
	conns     map[*conn]struct{} // guarded by mu
	stopped   bool               // guarded by mu
}

func newDrops(c *flow.Catalog) *drops {
	return &drops{
		lasts:     dropFor,
		mu:        flow.NewMutex(c, serviceNode, flow.RankCounters),
		byNetwork: map[netip.Addr]int{},
		conns:     map[*conn]struct{}{},
	}
}

// acquire reports whether the body of c, from a client in network, may be discarded.
func (d *drops) acquire(c *conn, network netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.byNetwork[network] >= dropPerNetwork {
		return false
	}
	d.byNetwork[network]++
	d.conns[c] = struct{}{}
	return true
}

func (d *drops) release(c *conn, network netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	if d.byNetwork[network]--; d.byNetwork[network] == 0 {
		delete(d.byNetwork, network)
	}
}

// isStopped reports whether stop was called.
func (d *drops) isStopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// stop ends all drops and admits no more, so that shutdown does not wait for refused bodies.
func (d *drops) stop() {
	d.mu.Lock()
	d.stopped = true
	all := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		all = append(all, c)
	}
	d.mu.Unlock()
	for _, c := range all {
		_ = c.raw.SetReadDeadline(time.Now())
	}
}

// DropBody sends the answer to a refused request, then reads and discards the rest of its body: up
// to 32 MiB within 5 s, on at most 16 connections of a network. Beyond these limits the connection
// closes at once. DropBody is called after the answer was written. The connection is not used
// again.
func (p *Peer) DropBody(w http.ResponseWriter, r *http.Request) {
	c := p.conn
	if c == nil || r.ContentLength >= 0 && r.ContentLength <= dropSmall {
		return
	}
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return
	}
	d, network := c.e.f.drops, limit.Network(p.Addr)
	if c.over != admitted || !d.acquire(c, network) { // reserved slots are for probes
		_ = control.SetReadDeadline(time.Now()) // so that net/http does not read the body either
		return
	}
	defer d.release(c, network)
	if control.SetReadDeadline(time.Now().Add(d.lasts)) != nil || d.isStopped() {
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, dropBytes)
	_ = control.SetReadDeadline(time.Now())
}
