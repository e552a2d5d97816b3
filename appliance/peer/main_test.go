package peer

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/flow"
)

// schema is that of the files of nodes.
const schema = 1

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// found returns the first node of a new cluster.
func found(t testing.TB) *Identity {
	t.Helper()
	id, err := Found("10.0.0.1:7946", schema, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// another returns a second node of the cluster of id.
func another(t testing.TB, id *Identity) *Identity {
	t.Helper()
	return issued(t, id, time.Now())
}

// issued returns a node of the cluster of id with a certificate issued at a time.
func issued(t testing.TB, id *Identity, at time.Time) *Identity {
	t.Helper()
	server, err := NewID(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := id.Authority().Issue(server, key.Public().(publicKey), at)
	if err != nil {
		t.Fatal(err)
	}
	info := NodeInfo{Cluster: id.ClusterID(), Server: server, Advertise: "10.0.0.2:7946"}
	out, err := NewIdentity(info, schema, key, cert, id.CACertPEM(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start runs a port on ln until the test ends.
func start(t testing.TB, ln net.Listener, id *Identity, member func(string) bool) *Port {
	t.Helper()
	cat := flow.NewCatalog(nil, nil)
	p := Listen(ln, id, Options{Catalog: cat, Member: member})
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	sup.Start(p.Tasks()...)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		sup.Close()
	})
	return p
}

// loopback returns a listener on a free port.
func loopback(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve serves HTTP on the port until the test ends.
func serve(t testing.TB, p *Port, peer, join http.Handler) {
	t.Helper()
	var wg sync.WaitGroup
	for _, task := range p.ServeTasks(NewServer(peer), NewJoinServer(join)) {
		wg.Go(func() { _ = task.Run(context.Background()) })
	}
	t.Cleanup(func() {
		_ = p.Close()
		wg.Wait()
	})
}

// pipes is a listener whose connections a test makes in memory, from addresses of its choice.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects from an address.
func (l *pipes) dial(from string) net.Conn {
	here, there := net.Pipe()
	l.conns <- from1{there, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	return here
}

type from1 struct {
	net.Conn
	addr net.Addr
}

func (c from1) RemoteAddr() net.Addr { return c.addr }
