package clustertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// links are proxies between the nodes: each node advertises the address of a proxy, which forwards
// to its peer port. A proxy finds the node that dials by its process, so that each direction
// between two nodes can be cut alone, as if its packets were lost.
type links struct {
	binds []string // the peer ports, by node
	wg    sync.WaitGroup

	mu     sync.Mutex
	moved  sync.Cond      // a cut or a pipe has changed
	cut    map[way]bool   // guarded by mu, as all below
	delay  time.Duration  // of each piece of data
	pids   map[int]int    // nodes, by process
	pipes  map[*pipe]bool // open ones
	front  []net.Listener // by node
	closed bool
}

// way is a direction between two nodes.
type way struct{ from, to int }

// outside is the place of a process that is no node, such as `ronbox cluster join`.
const outside = -1

// pipe is a connection from one node to another.
type pipe struct {
	near, far net.Conn
	gone      bool // guarded by links.mu
}

// newLinks starts proxies in front of the peer ports at binds.
func newLinks(t testing.TB, binds []string) *links {
	t.Helper()
	l := &links{binds: binds, cut: map[way]bool{}, pids: map[int]int{}, pipes: map[*pipe]bool{}}
	l.moved.L = &l.mu
	l.front = make([]net.Listener, len(binds))
	for i := range binds {
		l.open(t, i)
	}
	t.Cleanup(l.close)
	return l
}

// open starts a proxy in front of a node.
func (l *links) open(t testing.TB, i int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.mu.Lock()
	l.front[i] = ln
	l.mu.Unlock()
	l.wg.Go(func() { l.serve(ln, i, l.binds[i]) })
}

// move gives a stopped node another address, and nothing answers at the old one.
func (l *links) move(t testing.TB, i int) {
	t.Helper()
	must(t, l.front[i].Close())
	l.open(t, i)
}

// address returns the address that a node advertises.
func (l *links) address(i int) string { return l.front[i].Addr().String() }

// runs notes the process of a node.
func (l *links) runs(i, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pids[pid] = i
}

func (l *links) serve(ln net.Listener, to int, bind string) {
	for {
		near, err := ln.Accept()
		if err != nil {
			return // closed
		}
		l.wg.Go(func() { l.connect(near, to, bind) })
	}
}

// connect joins a connection to the peer port of a node.
func (l *links) connect(near net.Conn, to int, bind string) {
	from := l.dialer(near)
	far, err := net.Dial("tcp", bind)
	if err != nil {
		_ = near.Close()
		return
	}
	p := &pipe{near: near, far: far}
	l.mu.Lock()
	if l.closed {
		p.gone = true
	}
	l.pipes[p] = true
	l.mu.Unlock()
	l.wg.Go(func() { l.pump(p, far, near, way{to, from}) })
	l.pump(p, near, far, way{from, to})
}

// pump copies data until a side closes.
func (l *links) pump(p *pipe, src, dst net.Conn, w way) {
	defer l.drop(p)
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if err != nil || !l.pass(p, w) {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass waits while the direction is cut, and reports whether the pipe is still open.
func (l *links) pass(p *pipe, w way) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut[w] && !p.gone {
		l.moved.Wait()
	}
	if d := l.delay; d > 0 && !p.gone {
		l.mu.Unlock()
		time.Sleep(d)
		l.mu.Lock()
	}
	return !p.gone
}

// drop closes a pipe.
func (l *links) drop(p *pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.gone = true
	delete(l.pipes, p)
	l.moved.Broadcast()
	_ = p.near.Close()
	_ = p.far.Close()
}

// dialer returns the node whose process opened the other end of a connection.
func (l *links) dialer(c net.Conn) int {
	inode := socketInode(c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid, i := range l.pids {
		if inode != "" && holdsSocket(pid, inode) {
			return i
		}
	}
	return outside
}

// socketInode returns the inode of the loopback socket with these ports, or "".
func socketInode(local, remote int) string {
	raw, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	ends := fmt.Sprintf(" 0100007F:%04X 0100007F:%04X ", local, remote)
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, ends) {
			return strings.Fields(line)[9]
		}
	}
	return ""
}

// holdsSocket reports whether a process has the socket open.
func holdsSocket(pid int, inode string) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// lose cuts directions. Their data wait, as those of a TCP connection whose packets are lost.
func (l *links) lose(ways ...way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ways {
		l.cut[w] = true
	}
}

// slow delays each piece of data in all directions.
func (l *links) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// heal ends all cuts and delays. Waiting data arrive, or with reset their connections end.
func (l *links) heal(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.delay = map[way]bool{}, 0
	if reset {
		l.endPipes()
	}
	l.moved.Broadcast()
}

// endPipes ends all connections. l.mu is held.
func (l *links) endPipes() {
	for p := range l.pipes {
		p.gone = true
		_ = p.near.Close()
		_ = p.far.Close()
	}
}

// from and to return all directions from and to a node.
func (l *links) from(i int) (out []way) {
	for j := range len(l.binds) {
		if j != i {
			out = append(out, way{i, j})
		}
	}
	return out
}

func (l *links) to(i int) (out []way) {
	for _, w := range l.from(i) {
		out = append(out, way{w.to, w.from})
	}
	return out
}

func (l *links) close() {
	for _, ln := range l.front {
		_ = ln.Close()
	}
	l.mu.Lock()
	l.closed = true
	l.endPipes()
	l.moved.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
}
