package upstream

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// An endpoint is judged by its form before anything is dialled.
func TestEndpointForms(t *testing.T) {
	plain := NodeRule{Plain: true}
	for _, tt := range []struct {
		endpoint string
		rule     NodeRule
		ok       bool
	}{
		{"https://node.example", NodeRule{}, true},
		{"https://node.example:8443/", NodeRule{}, true},
		{"https://10.1.2.3:8443", NodeRule{}, true}, // its address is judged when it is dialled
		{"https://a:b@node.example", NodeRule{}, false},
		{"https://node.example/path", NodeRule{}, false},
		{"https://node.example?x=1", NodeRule{}, false},
		{"https://node.example#x", NodeRule{}, false},
		{"https://:8443", NodeRule{}, false},
		{"https:node.example", NodeRule{}, false},
		{"ftp://node.example", NodeRule{}, false},
		{"", NodeRule{}, false},
		{"http://127.0.0.1:80", NodeRule{}, false},
		{"http://127.0.0.1:80", plain, true},
		{"http://[::1]:80", plain, true},
		{"http://localhost:80", plain, true},
		{"http://10.1.2.3:80", plain, false},
		{"http://node.example", plain, false},
	} {
		if _, err := tt.rule.Spec(tt.endpoint, nil, Spec{}); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrURL) {
			t.Errorf("%q, plain %t: %v, want ok %t", tt.endpoint, tt.rule.Plain, err, tt.ok)
		}
	}
}

// Which addresses an endpoint may have depends on its pins and on allow_private.
func TestEndpointAddresses(t *testing.T) {
	pins := []Pin{{1}}
	wide := NodeRule{Allow: prefixes("10.9.0.0/16", "0.0.0.0/0", "::/0"), Own: []netip.AddrPort{
		netip.MustParseAddrPort("10.9.9.9:1"), netip.MustParseAddrPort("0.0.0.0:8443"),
	}}
	for _, tt := range []struct {
		to   string
		rule NodeRule
		pins []Pin
		ok   bool
	}{
		{"8.8.8.8:443", NodeRule{}, nil, true},
		{"10.9.1.1:443", NodeRule{}, nil, false},
		{"10.9.1.1:443", NodeRule{}, pins, true},
		{"10.9.1.1:443", NodeRule{Allow: prefixes("10.9.0.0/16")}, nil, true},
		{"127.0.0.1:443", NodeRule{}, nil, false},
		{"127.0.0.1:443", NodeRule{}, pins, true},
		{"[::ffff:127.0.0.1]:443", NodeRule{}, nil, false},
		{"[fd00:1::5]:443", NodeRule{}, pins, true},
		{"198.18.0.1:443", NodeRule{}, pins, false},
		{"169.254.169.254:80", NodeRule{}, pins, false},
		{"169.254.169.254:80", wide, pins, false},
		{"[::ffff:169.254.169.254]:80", wide, pins, false},
		{"[fe80::1%lo]:80", wide, pins, false},
		{"[fd00:ec2::254]:80", wide, pins, false},
		{"100.100.100.200:80", wide, pins, false},
		{"168.63.129.16:443", NodeRule{}, nil, false},
		{"0.0.0.0:80", wide, pins, false},
		{"[::]:80", wide, pins, false},
		{"224.0.0.1:80", wide, pins, false},
		{"[64:ff9b::a9fe:a9fe]:80", wide, pins, false},
		{"10.9.9.9:1", wide, pins, false},
		{"[::ffff:10.9.9.9]:1", wide, pins, false},
		{"10.9.9.9:2", wide, pins, true},
		{"127.0.0.1:8443", wide, pins, false}, // a listener on every address
		{"8.8.8.8:8443", wide, pins, true},
	} {
		s, err := tt.rule.Spec("https://node.example", tt.pins, Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Guard.checkPort(netip.MustParseAddrPort(tt.to)); (err == nil) != tt.ok {
			t.Errorf("%s, %d pins, %v: %v, want ok %t", tt.to, len(tt.pins), tt.rule.Allow, err, tt.ok)
		}
	}
	s, err := NodeRule{Plain: true}.Spec("http://localhost:1", nil, Spec{})
	if err != nil || s.Guard.Check(netip.IPv6Loopback()) != nil {
		t.Error("plain HTTP does not reach this host")
	}
}

// nodeClient returns a client for an endpoint.
func nodeClient(t *testing.T, rule NodeRule, endpoint string, pins ...Pin) *Client {
	t.Helper()
	m := obs.NewMetrics()
	s, err := rule.Spec(endpoint, pins, Spec{
		Service: "edge", Svc: "node", Op: "fetch", Timeout: time.Minute, Tries: 3,
		Delay: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(flow.NewCatalog(m, nil), m, s)
	t.Cleanup(c.Close)
	return c
}

func ask(c *Client, url string) (string, error) {
	var got []byte
	err := c.Get(context.Background(), Request{URL: url, Max: 100}, func(a *Answer) (err error) {
		got, err = io.ReadAll(a.Body)
		return err
	})
	return string(got), err
}

// A pinned key is believed under any name and without a known chain; another key is not, even if its
// chain is known. It counts as a failed connection and is not tried again.
func TestPinnedKey(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "here")
	}))
	defer server.Close()
	own := PinOf(server.Certificate().RawSubjectPublicKeyInfo)
	for _, host := range []string{"127.0.0.1", "localhost"} { // the certificate is for example.com
		at := "https://" + host + ":" + server.URL[strings.LastIndex(server.URL, ":")+1:]
		if got, err := ask(nodeClient(t, NodeRule{}, at, Pin{1}, own), at); err != nil || got != "here" {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
	rule := NodeRule{Roots: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		Allow: prefixes("127.0.0.0/8")}
	if _, err := ask(nodeClient(t, rule, server.URL), server.URL); err != nil {
		t.Errorf("without a pin, the chain: %v", err)
	}
	_, err := ask(nodeClient(t, rule, server.URL, Pin{1}), server.URL)
	if !errors.Is(err, ErrPin) || !IsConnect(err) || transient(err) {
		t.Errorf("another key: %v", err)
	}
	if _, err := ask(nodeClient(t, NodeRule{Allow: rule.Allow}, server.URL), server.URL); err == nil {
		t.Error("an unknown chain is believed without a pin")
	}
}

// A node that redirects is refused, and its client calls no other host.
func TestNodeRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	c := nodeClient(t, NodeRule{Plain: true}, server.URL)
	if _, err := ask(c, server.URL); !errors.Is(err, ErrRedirect) {
		t.Errorf("a redirect: %v", err)
	}
	if _, err := ask(c, other.URL); !errors.Is(err, ErrURL) {
		t.Errorf("another host: %v", err)
	}
}

// A pin has two texts.
func TestParsePin(t *testing.T) {
	want := PinOf([]byte("key"))
	for text, ok := range map[string]bool{
		want.String(): true,
		"sha256:" + base64.StdEncoding.EncodeToString(want[:]):    true,
		"sha256:" + base64.RawStdEncoding.EncodeToString(want[:]): false,
		"sha1:" + want.String()[7:]:                               false,
		want.String()[7:]:                                         false,
		want.String() + "0":                                       false,
		"sha256:" + strings.Repeat("g", 64):                       false,
		"":                                                        false,
	} {
		if got, err := ParsePin(text); (err == nil) != ok || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// A HEAD tells the length of a body that is longer than the caller would read.
func TestHead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		w.WriteHeader(map[string]int{"/there": 200}[q.URL.Path] + map[string]int{"/not": 404}[q.URL.Path])
	}))
	defer server.Close()
	c := nodeClient(t, NodeRule{Plain: true}, server.URL)
	err := c.Get(t.Context(), Request{URL: server.URL + "/there", Head: true}, func(a *Answer) error {
		if a.Length != 1000000 {
			t.Errorf("length %d", a.Length)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	missing := Request{URL: server.URL + "/not", Head: true}
	if err := c.Get(t.Context(), missing, func(*Answer) error { return nil }); StatusOf(err) != 404 {
		t.Error(err)
	}
}
