package cluster

import (
	"context"
	"crypto/ed25519"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

var _ member.Cluster = (*Node)(nil)

// tlsPort is a Peers over the peer port.
type tlsPort struct {
	*peer.Port
	id *peer.Identity
}

func (p tlsPort) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return p.id.Dial(ctx, addr, peer.ProtoRaft)
}

// listenTLS makes an identity and its peer port on loopback. The identity is of the cluster of
// founder, if that is not nil.
func listenTLS(t *testing.T, founder *peer.Identity) tlsPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.Found(ln.Addr().String(), store.Schema, time.Now())
	if err == nil && founder != nil {
		id, err = issue(founder, ln.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	port := peer.Listen(ln, id, peer.Options{
		Catalog: flow.NewCatalog(nil, nil),
		Member:  func(string) bool { return true },
	})
	var tasks sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for _, task := range port.Tasks() {
		for range task.Count {
			tasks.Go(func() { _ = task.Run(ctx) })
		}
	}
	t.Cleanup(func() {
		stop()
		if err := port.Close(); err != nil {
			t.Error(err)
		}
		tasks.Wait()
	})
	return tlsPort{port, id}
}

// issue makes another identity of the cluster of founder.
func issue(founder *peer.Identity, advertise string) (*peer.Identity, error) {
	server, err := peer.NewID(time.Now())
	if err != nil {
		return nil, err
	}
	key, err := peer.NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := founder.Authority().Issue(server, key.Public().(ed25519.PublicKey), time.Now())
	if err != nil {
		return nil, err
	}
	info := peer.NodeInfo{Cluster: founder.ClusterID(), Server: server, Advertise: advertise}
	return peer.NewIdentity(info, store.Schema, key, cert, founder.CACertPEM(), nil)
}

// foundTLS makes a cluster of server a with the identity of its port, and starts it.
func foundTLS(t *testing.T, w *world, a tlsPort) *life {
	t.Helper()
	first := w.add("a")
	ident, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(first.path(), ident)
	}
	if err == nil {
		c := raft.Configuration{Servers: []raft.Server{{
			Suffrage: raft.Voter, ID: raft.ServerID(a.id.ServerID()), Address: raft.ServerAddress(a.id.Advertise()),
		}}}
		err = store.SetMembership(first.path(), &store.Membership{
			Index: 1, Raw: raft.EncodeConfiguration(c),
			Applied: store.Applied{Place: store.Place{Index: 1, Term: 1}, Origin: originInit},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := first.begin()
	if err != nil {
		t.Fatal(err)
	}
	await(t, l.node.Elected())
	return l
}

// Two nodes replicate over TLS and real sockets.
func TestOverThePeerPort(t *testing.T) {
	a, b := listenTLS(t, nil), tlsPort{}
	b = listenTLS(t, a.id)
	w := newWorld(t, 0)
	w.ports = map[string]tlsPort{"a": a, "b": b}
	la := foundTLS(t, w, a)
	second := w.add("b")
	second.receive(la.node)
	lb, err := second.begin()
	if err != nil {
		t.Fatal(err)
	}
	if err = la.node.Admit(t.Context(), b.id.ServerID(), b.id.Advertise(), true); err != nil {
		t.Fatal(err)
	}
	if _, err = store.Commit(t.Context(), la.store, store.Work, put{"k", "v"}); err != nil {
		t.Fatal(err)
	}
	if err = la.node.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	for lb.store.Applied().Place != la.store.Applied().Place {
		select {
		case <-t.Context().Done():
			t.Fatal("not replicated")
		case <-time.After(time.Millisecond):
		}
	}
	for _, l := range []*life{lb, la} {
		if err := l.end(); err != nil {
			t.Error(err)
		}
	}
	if m, err := store.ReadMembership(member.At(second.dir).Database()); err != nil || m.Applied.Index < 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

// A leader tells that a node of another cluster answers in the place of a member: it was recovered.
func TestStrangeMember(t *testing.T) {
	a, other := listenTLS(t, nil), listenTLS(t, nil)
	w := newWorld(t, 0)
	w.ports = map[string]tlsPort{"a": a}
	life := foundTLS(t, w, a)
	id, err := peer.NewID(time.Now())
	if err == nil {
		err = life.node.Admit(t.Context(), id, other.id.Advertise(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		ms := life.node.Status(t.Context()).Members
		if len(ms) == 2 && ms[1].Strange && !ms[1].Healthy && !ms[0].Strange {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("members %+v", ms)
		case <-time.After(time.Millisecond):
		}
	}
	if err := life.end(); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-t.Context().Done():
		t.Fatal("it did not come")
	}
}

// closedPort is a peer port that was closed before raft stopped, as at each stop of a node.
type closedPort struct {
	Peers
	ln net.Listener
}

func (p closedPort) Raft() net.Listener { return p.ln }

// lineTo sends the lines of a log while there is room.
type lineTo chan string

func (l lineTo) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

func TestClosedPortIsNoError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = ln.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(lineTo, 1)
	n := &Node{log: hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: lines})}
	trans := n.newTransport(newStreams(closedPort{ln: ln}, "a", n.dialed))
	select {
	case line := <-lines:
		if !strings.Contains(line, "[DEBUG]") || !strings.Contains(line, "closed network connection") {
			t.Errorf("logged: %s", line)
		}
	case <-t.Context().Done():
		t.Error("nothing was logged")
	}
	if err := trans.Close(); err != nil {
		t.Error(err)
	}
}
