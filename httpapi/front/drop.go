package front

import (
	"io"
	"net/http"
	"net/netip"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/limit"
)

// Limits of dropping the bodies of refused requests. Closing a connection on which bytes are unread resets it, and a client that sends all
// before it reads loses the answer that names the reason.
const (
	dropBytes      = 32 << 20        // of one body: half of the largest server.max_body_bytes, and of any honest mistake
	dropFor        = 5 * time.Second // 32 MiB need 54 Mbit/s; a slower client meets the reset
	dropPerNetwork = 16              // connections; a browser opens 6
	dropSmall      = 256 << 10       // net/http reads a rest of at most this length itself, and may keep the connection
)

// drops are the connections whose bodies are being dropped.
type drops struct {
	mu        *flow.Mutex
	byNetwork map[netip.Addr]int // guarded by mu; only networks that have one
	conns     map[*conn]struct{} // guarded by mu
	stopped   bool               // guarded by mu
}

func newDrops(c *flow.Catalog) *drops {
	return &drops{
		mu: flow.NewMutex(c, serviceNode, flow.RankCounters), byNetwork: map[netip.Addr]int{}, conns: map[*conn]struct{}{},
	}
}

// acquire reports whether c, whose client is of network, may have its body dropped.
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

// isStopped reports whether stop has been called.
func (d *drops) isStopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// stop ends all drops and admits no more: shutdown does not wait for bodies that have been refused.
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

// DropBody sends the answer of a refused request whose body was not read to its end, then reads and drops the rest of the body: up to 32 MiB
// within 5 s, on at most 16 connections of a network. Beyond these limits the connection ends at once. It is called after the
// answer was written, and the connection is not used again.
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
	if c.over != admitted || !d.acquire(c, network) { // a reserved slot is for probes
		_ = control.SetReadDeadline(time.Now()) // net/http drops nothing either
		return
	}
	defer d.release(c, network)
	if control.SetReadDeadline(time.Now().Add(dropFor)) != nil || d.isStopped() {
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, dropBytes)
	_ = control.SetReadDeadline(time.Now())
}
