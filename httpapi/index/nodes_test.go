package index

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/index/name"
	"ronbox/engines/index/name/nametest"
)

// nodeServer is a node with a certificate of its own, which counts what it is asked.
func nodeServer(t *testing.T, h http.HandlerFunc) (s *httptest.Server, n fleet.Node, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	pin := upstream.PinOf(s.Certificate().RawSubjectPublicKeyInfo).String()
	return s, fleet.Node{ID: "node/b", Endpoint: s.URL, Region: "eu-1", SPKI: []string{pin}}, asked
}

// nodeRig is the node that calls others, with a rule that may change.
type nodeRig struct {
	rule  upstream.NodeRule
	pool  *lines.Pool
	nodes Nodes
}

func newNodeRig(t *testing.T, rule upstream.NodeRule) *nodeRig {
	t.Helper()
	r := &nodeRig{rule: rule}
	m := obs.NewMetrics()
	r.pool = lines.New(lines.Deps{
		Catalog: flow.NewCatalog(m, nil),
		Metrics: m,
		Rule:    func(*fleet.View) upstream.NodeRule { return r.rule },
	})
	t.Cleanup(r.pool.Close)
	return r
}

// set makes a view of one node, and returns its peer, or nil if it must not be called.
func (r *nodeRig) set(n fleet.Node) *Peer {
	n.Services = []string{fleet.ServiceIndex}
	all := r.nodes.Set(r.pool.Set(&fleet.View{Nodes: []fleet.Node{n}}), "own", nil, hclog.NewNullLogger())
	if len(all) == 0 {
		return nil
	}
	return all[0].Peer.(*Peer)
}

func nodePeer(t *testing.T, n fleet.Node, rule upstream.NodeRule) *Peer {
	t.Helper()
	return newNodeRig(t, rule).set(n)
}

// A node is called over TLS with the key that its item pins, or not at all: without pins a private
// address is refused, as are another key, a redirect and a listener of this node.
func TestNodePeerTransport(t *testing.T) {
	record := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"record":"AAAA"}`)) }
	s, n, asked := nodeServer(t, record)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	own := netip.MustParseAddrPort(s.Listener.Addr().String())
	other := n
	other.SPKI = []string{"sha256:" + strings.Repeat("00", 32)}
	bare := n
	bare.SPKI = nil
	for _, tt := range []struct {
		doc  string
		node fleet.Node
		rule upstream.NodeRule
		ok   bool
	}{
		{"pinned", n, upstream.NodeRule{}, true},
		{"another key", other, upstream.NodeRule{Allow: loopback}, false},
		{"private without a pin", bare, upstream.NodeRule{}, false},
		{"allowed, with an unknown issuer", bare, upstream.NodeRule{Allow: loopback}, false},
		{"a listener of this node", n, upstream.NodeRule{Own: []netip.AddrPort{own}}, false},
	} {
		before := asked.Load()
		_, err := nodePeer(t, tt.node, tt.rule).Name(t.Context(), nametest.Parse("name:docs.example"))
		if (err == nil) != tt.ok || (asked.Load() > before) != tt.ok {
			t.Errorf("%s: err = %v, asked %d times", tt.doc, err, asked.Load()-before)
		}
	}
	redirect, from, _ := nodeServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+r.URL.Path, http.StatusFound)
	})
	defer redirect.Close()
	if _, err := nodePeer(t, from, upstream.NodeRule{}).Name(t.Context(), nametest.Parse("name:docs.example")); !errors.Is(err, name.ErrInvalid) {
		t.Errorf("a redirect: err = %v", err)
	}
}

// Plain http is for loopback alone, and only if the endpoint of this node is http as well.
func TestNodePeerPlainHTTP(t *testing.T) {
	for _, tt := range []struct {
		endpoint string
		plain    bool
		ok       bool
	}{
		{"http://127.0.0.1:8080", true, true},
		{"http://127.0.0.1:8080", false, false},
		{"http://10.0.0.1:8080", true, false},
		{"http://node.example", true, false},
	} {
		n := fleet.Node{ID: "node/b", Endpoint: tt.endpoint}
		if p := nodePeer(t, n, upstream.NodeRule{Plain: tt.plain}); (p != nil) != tt.ok {
			t.Errorf("%s, own http %t: %v", tt.endpoint, tt.plain, p)
		}
	}
}

// A newer version of an item is used by the next call. A version that changes nothing keeps the
// connections.
func TestSetNode(t *testing.T) {
	_, n, _ := nodeServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"record":"AAAA"}`)) })
	r := newNodeRig(t, upstream.NodeRule{})
	p := r.set(n)
	ask := func(ok bool) {
		t.Helper()
		if _, err := p.Name(t.Context(), nametest.Parse("name:docs.example")); (err == nil) != ok {
			t.Errorf("err = %v", err)
		}
	}
	ask(true)
	before := p.access.Load()
	moved := n
	moved.Region = "us-1"
	if r.set(moved) != p || p.access.Load() != before || p.Region() != "us-1" {
		t.Errorf("the same item with another region: %q", p.Region())
	}
	rotated := n
	rotated.SPKI = []string{"sha256:" + strings.Repeat("00", 32)}
	if r.set(rotated) != p {
		t.Error("another key makes another peer, which has another breaker")
	}
	ask(false)
	r.set(n)
	ask(true)
	plain := n
	plain.Endpoint = strings.Replace(n.Endpoint, "https:", "http:", 1)
	if r.set(plain) != nil {
		t.Error("http is accepted although the endpoint of this node is https")
	}
}
