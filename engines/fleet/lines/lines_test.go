package lines_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
)

// rig is a pool and one other node, which counts its connections.
type rig struct {
	t     *testing.T
	pool  *lines.Pool
	rule  upstream.NodeRule
	node  fleet.Node
	conns atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	pin := upstream.PinOf(s.Certificate().RawSubjectPublicKeyInfo).String()
	r.node = fleet.Node{ID: "node/b", Endpoint: s.URL, SPKI: []string{pin}, Services: []string{"edge", "index"}}
	m := obs.NewMetrics()
	r.pool = lines.New(lines.Deps{
		Catalog: flow.NewCatalog(m, nil),
		Metrics: m,
		Rule:    func(*fleet.View) upstream.NodeRule { return r.rule },
	})
	t.Cleanup(r.pool.Close)
	return r
}

// set makes a view of this node and n, and returns n with its line.
func (r *rig) set(n fleet.Node) lines.Node {
	r.t.Helper()
	l := r.pool.Set(&fleet.View{Self: "node/a", Nodes: []fleet.Node{
		{ID: "node/a", Endpoint: "https://a.example", Services: []string{"edge"}}, n,
	}})
	if r.pool.Now() != l || len(l.With("edge")) != 1 || len(l.With("ledger")) != 0 {
		r.t.Fatalf("the lines are %+v", l.With("edge"))
	}
	return l.With("edge")[0]
}

// client returns a client as a service makes one.
func client(n lines.Node, op string) *upstream.Client {
	return n.Line.Client(upstream.Spec{
		Service: "edge", Svc: "node", Op: op, Timeout: time.Minute, Tries: 1,
		Delay: func(int) time.Duration { return 0 },
	})
}

func get(t *testing.T, n lines.Node, c *upstream.Client) error {
	t.Helper()
	return c.Get(t.Context(), upstream.Request{URL: n.Line.URL("/x")}, func(*upstream.Answer) error { return nil })
}

// Clients of one line share its connections. A line stays while endpoint, pins and rule stay, and
// the item of the node is the newest.
func TestLinesStay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.set(r.node)
	for _, op := range []string{"fetch", "lookup"} {
		if err := get(t, first, client(first, op)); err != nil {
			t.Fatal(err)
		}
	}
	moved := r.node
	moved.Region, moved.Names = "eu-1", []string{"b.example"}
	next := r.set(moved)
	if next.Line != first.Line || next.Region != "eu-1" || first.Region != "" {
		t.Errorf("%+v, was %+v", next, first)
	}
	shared := false // net/http leaves a connection whose write it has noted late, as on a busy machine
	for n := 0; n < 20 && !shared; n++ {
		before := r.conns.Load()
		if err := errors.Join(get(t, first, client(first, "lookup")), get(t, next, client(next, "fetch"))); err != nil {
			t.Fatal(err)
		}
		shared = r.conns.Load() == before
	}
	if !shared {
		t.Errorf("%d connections", r.conns.Load())
	}
	r.rule.Plain = true
	if other := r.set(moved); other.Line == first.Line {
		t.Error("a line outlasts the rule under which it was made")
	}
}

// After other pins, no call meets a connection that was made under the old ones, not even a call of
// a client of the old line.
func TestOtherPins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.set(r.node)
	old := client(first, "fetch")
	if err := get(t, first, old); err != nil {
		t.Fatal(err)
	}
	rotated := r.node
	rotated.SPKI = []string{"sha256:" + strings.Repeat("00", 32)}
	next := r.set(rotated)
	if next.Line == first.Line {
		t.Fatal("the line stays")
	}
	if err := get(t, next, client(next, "fetch")); err == nil {
		t.Error("a node without the pinned key is called")
	}
	before := r.conns.Load()
	for range 2 {
		if err := get(t, first, old); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.conns.Load() - before; n != 2 {
		t.Errorf("two calls over a line that was shut made %d connections", n)
	}
}

// A node whose item is not sound has a fault and no line, and comes back with a sound item.
func TestFaultyNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, change := range []func(*fleet.Node){
		func(n *fleet.Node) { n.Endpoint = "http://b.example" },
		func(n *fleet.Node) { n.Endpoint = "https://b.example/path" },
		func(n *fleet.Node) { n.SPKI = []string{"sha256:zz"} },
	} {
		bad := r.node
		change(&bad)
		if n := r.set(bad); n.Line != nil || n.Fault == nil || !strings.Contains(n.Fault.Error(), "node/b") {
			t.Errorf("%s, %s: %+v", bad.Endpoint, bad.SPKI, n)
		}
	}
	if n := r.set(r.node); n.Line == nil || n.Fault != nil || n.Host != strings.TrimPrefix(r.node.Endpoint, "https://") {
		t.Errorf("%+v", n)
	}
	if l := r.pool.Set(nil); l != nil || l.With("edge") != nil {
		t.Errorf("without a view: %+v", l)
	}
}
