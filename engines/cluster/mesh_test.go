package cluster

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// mesh is a network in memory. Each directed link can be cut; writes are delayed and, rarely,
// reset, as the random numbers have it.
type mesh struct {
	mu    sync.Mutex
	rng   *rand.Rand
	ports map[string]*memPort         // by address
	cut   map[[2]string]bool          // from, to
	held  map[[2]string]chan struct{} // writes wait until it is closed
	delay time.Duration               // most of a write
	rate  int                         // bytes a second; 0: no bound
	reset float64                     // probability of a reset at a write
}

func newMesh(seed uint64) *mesh {
	return &mesh{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		ports: map[string]*memPort{},
		cut:   map[[2]string]bool{},
		held:  map[[2]string]chan struct{}{},
	}
}

// hold delays what is written from a to b until release is called.
func (m *mesh) hold(a, b string) (release func()) {
	gate := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[[2]string{a, b}] = gate
	return func() {
		m.mu.Lock()
		delete(m.held, [2]string{a, b})
		m.mu.Unlock()
		close(gate)
	}
}

// gate returns a channel to wait for before a write, or nil.
func (m *mesh) gate(a, b string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[[2]string{a, b}]
}

// set cuts or heals the link from a to b.
func (m *mesh) set(a, b string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[[2]string{a, b}] = cut
}

// isolate cuts or heals every link of addr.
func (m *mesh) isolate(addr string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.ports {
		m.cut[[2]string{addr, other}] = cut
		m.cut[[2]string{other, addr}] = cut
	}
}

// heal heals all links.
func (m *mesh) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.cut)
}

// weather returns the delay of a write, and whether the connection is cut or reset.
func (m *mesh) weather(from, to string, size int) (delay time.Duration, cut, reset bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.delay > 0 {
		delay = time.Duration(m.rng.Int64N(int64(m.delay)))
	}
	if m.rate > 0 {
		delay += time.Duration(size) * time.Second / time.Duration(m.rate)
	}
	return delay, m.cut[[2]string{from, to}], m.rng.Float64() < m.reset
}

// port opens the peer port of addr.
func (m *mesh) port(addr string) *memPort {
	p := &memPort{mesh: m, addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports[addr] = p
	return p
}

// memPort is a Peers.
type memPort struct {
	mesh   *mesh
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *memPort) Raft() net.Listener { return p }

func (p *memPort) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *memPort) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *memPort) Addr() net.Addr { return advertised(p.addr) }

func (p *memPort) Dial(ctx context.Context, addr string) (net.Conn, error) {
	p.mesh.mu.Lock()
	to := p.mesh.ports[addr]
	p.mesh.mu.Unlock()
	_, there, _ := p.mesh.weather(p.addr, addr, 0)
	_, back, _ := p.mesh.weather(addr, p.addr, 0)
	if there || back {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if to == nil {
		return nil, errors.New("connection refused")
	}
	a, b := net.Pipe()
	select {
	case to.conns <- &memConn{Conn: b, mesh: p.mesh, from: addr, to: p.addr}:
		return &memConn{Conn: a, mesh: p.mesh, from: p.addr, to: addr}, nil
	case <-to.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// memConn is one end of a connection. What is written to a link that is cut is lost, and so is all
// that is written later.
type memConn struct {
	net.Conn
	mesh     *mesh
	from, to string
	lost     bool // one goroutine writes
}

func (c *memConn) Write(p []byte) (int, error) {
	delay, cut, reset := c.mesh.weather(c.from, c.to, len(p))
	if delay > 0 {
		time.Sleep(delay)
	}
	if gate := c.mesh.gate(c.from, c.to); gate != nil {
		<-gate
	}
	if reset {
		_ = c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	c.lost = c.lost || cut
	if c.lost {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
