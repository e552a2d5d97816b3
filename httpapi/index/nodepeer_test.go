package index

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet"
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

func nodePeer(t *testing.T, n fleet.Node, rule upstream.NodeRule) *Peer {
	t.Helper()
	m := obs.NewMetrics()
	p, err := NewNodePeer(flow.NewCatalog(m, nil), m, n, rule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
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
	m := obs.NewMetrics()
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
		_, err := NewNodePeer(flow.NewCatalog(m, nil), m, n, upstream.NodeRule{Plain: tt.plain})
		if (err == nil) != tt.ok {
			t.Errorf("%s, own http %t: %v", tt.endpoint, tt.plain, err)
		}
	}
}

// A newer version of an item is used by the next call. A version that changes nothing keeps the
// connections.
func TestSetNode(t *testing.T) {
	_, n, _ := nodeServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"record":"AAAA"}`)) })
	p := nodePeer(t, n, upstream.NodeRule{})
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
	if err := p.SetNode(moved, upstream.NodeRule{}); err != nil || p.access.Load() != before || p.Region() != "us-1" {
		t.Errorf("the same item with another region: %v, %q", err, p.Region())
	}
	rotated := n
	rotated.SPKI = []string{"sha256:" + strings.Repeat("00", 32)}
	if err := p.SetNode(rotated, upstream.NodeRule{}); err != nil {
		t.Fatal(err)
	}
	ask(false)
	if err := p.SetNode(n, upstream.NodeRule{}); err != nil {
		t.Fatal(err)
	}
	ask(true)
	plain := n
	plain.Endpoint = strings.Replace(n.Endpoint, "https:", "http:", 1)
	if err := p.SetNode(plain, upstream.NodeRule{}); err == nil {
		t.Error("http is accepted although the endpoint of this node is https")
	}
}
