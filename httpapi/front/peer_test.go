package front

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// proxies trusts 10/8 and one IPv6 network.
func proxies(a netip.Addr) bool {
	return contains([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48")}, a)
}

const unclear = "invalid IP"

func TestClientIsTheRightmostThatIsNoProxy(t *testing.T) {
	for _, tt := range []struct {
		doc       string
		list, std []string
		want      string
	}{
		{"one", []string{"192.0.2.1"}, nil, "192.0.2.1"},
		{"the last word counts", []string{"6.6.6.6, 192.0.2.1"}, nil, "192.0.2.1"},
		{"proxies are passed over", []string{"6.6.6.6, 192.0.2.1, 10.0.0.2, 10.0.0.3"}, nil, "192.0.2.1"},
		{"lines are one list", []string{"6.6.6.6", "192.0.2.1", "10.0.0.2"}, nil, "192.0.2.1"},
		{"proxies only", []string{"10.0.0.1,10.0.0.2"}, nil, "10.0.0.1"},
		{"ports", []string{"192.0.2.1:8080"}, nil, "192.0.2.1"},
		{"IPv6", []string{"2001:db8::1"}, nil, "2001:db8::1"},
		{"IPv6 with a port", []string{"[2001:db8::1]:99"}, nil, "2001:db8::1"},
		{"IPv6 in brackets", []string{"[2001:db8::1]"}, nil, "2001:db8::1"},
		{"an IPv4 address in IPv6", []string{"::ffff:192.0.2.1"}, nil, "192.0.2.1"},
		{"zones are dropped", []string{"fe80::1%eth0"}, nil, "fe80::1"},
		{"half a bracket", []string{"[2001:db8::1"}, nil, unclear},
		{"a name", []string{"client.example"}, nil, unclear},
		{"nothing", []string{""}, nil, unclear},
		{"an empty last hop", []string{"192.0.2.1,"}, nil, unclear},
		{"garbage to the left does not matter", []string{"garbage, 192.0.2.1"}, nil, "192.0.2.1"},
		{"garbage behind the proxy does", []string{"192.0.2.1, garbage, 10.0.0.1"}, nil, unclear},

		{"forwarded", nil, []string{"for=192.0.2.1"}, "192.0.2.1"},
		{"forwarded, whole", nil, []string{`for=6.6.6.6, For="[2001:db8::1]:4711";proto=http;by=10.0.0.1, for=10.0.0.9`}, "2001:db8::1"},
		{"forwarded, quoted comma", nil, []string{`host="a,for=6.6.6.6";for=192.0.2.1`}, "192.0.2.1"},
		{"forwarded, quoted escape", nil, []string{`host="a\",for=6.6.6.6";for=192.0.2.1`}, "192.0.2.1"},
		{"forwarded, hidden port", nil, []string{`for="192.0.2.1:_web-1"`, `for="10.0.0.1:_x"`}, "192.0.2.1"},
		{"forwarded, hidden port of IPv6", nil, []string{`for="[2001:db8::1]:_a.b"`}, "2001:db8::1"},
		{"forwarded, a hidden port that is none", nil, []string{`for="192.0.2.1:_"`}, unclear},
		{"forwarded, IPv6 and no port", nil, []string{`for="2001:db8::1:_a"`}, unclear},
		{"forwarded, empty elements", nil, []string{"for=192.0.2.1, ,for=10.0.0.1,", ",for=10.0.0.1;"}, "192.0.2.1"},
		{"forwarded, a space before the equals sign", nil, []string{"for =192.0.2.1"}, unclear},
		{"forwarded, hidden", nil, []string{"for=192.0.2.1, for=_hidden"}, unclear},
		{"forwarded, unknown", nil, []string{"for=unknown"}, unclear},
		{"forwarded, no for", nil, []string{"for=192.0.2.1, proto=http"}, unclear},
		{"forwarded, twice", nil, []string{"for=192.0.2.1;for=192.0.2.2"}, unclear},
		{"forwarded, open quote", nil, []string{`for=192.0.2.1, for="192.0.2.2`}, unclear},
		{"forwarded, stray text", nil, []string{`for=192.0.2.1 x`}, unclear},
		{"forwarded, lines", nil, []string{"for=192.0.2.1", "for=10.0.0.1"}, "192.0.2.1"},

		{"both agree", []string{"192.0.2.1"}, []string{"for=192.0.2.1"}, "192.0.2.1"},
		{"both disagree", []string{"192.0.2.1"}, []string{"for=127.0.0.1"}, unclear},
	} {
		h := http.Header{}
		if tt.list != nil {
			h["X-Forwarded-For"] = tt.list
		}
		if tt.std != nil {
			h["Forwarded"] = tt.std
		}
		if got, named := forwarded(h, proxies); got.String() != tt.want || !named {
			t.Errorf("%s: %v %v, want %s", tt.doc, got, named, tt.want)
		}
	}
	if _, named := forwarded(http.Header{}, proxies); named {
		t.Error("named by no header")
	}
}

func TestOnlyTrustedProxiesAreBelieved(t *testing.T) {
	f := newRig(t, func(s *setup) { s.cfg.Trusted = []string{"10.0.0.0/8"} }).Front
	for _, tt := range []struct {
		from, says, want string
	}{
		{"10.0.0.1", "192.0.2.1", "192.0.2.1"}, {"10.0.0.1", "", "10.0.0.1"}, {"192.0.2.9", "127.0.0.1", "192.0.2.9"}, {"10.0.0.1", "x", ""},
	} {
		c := &conn{e: f.tcp}
		c.peer = Peer{Addr: netip.MustParseAddr(tt.from), conn: c}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r = r.WithContext(WithPeer(r.Context(), &c.peer))
		if tt.says != "" {
			r.Header.Set("X-Forwarded-For", tt.says)
		}
		if got := PeerOf(r).String(); got != tt.want {
			t.Errorf("%s says %q: %q, want %q", tt.from, tt.says, got, tt.want)
		}
	}
	if p := PeerOf(httptest.NewRequest(http.MethodGet, "/", nil)); p == nil || p.String() != "" {
		t.Errorf("nobody is %v", p)
	}
}

// Only a trusted proxy can name the scheme and host that its client requested.
func TestOrigin(t *testing.T) {
	f := newRig(t, func(s *setup) { s.cfg.Trusted = []string{"10.0.0.0/8"} }).Front
	const own, secure = "http://maps.example", "https://maps.example"
	type says map[string]string
	for _, tt := range []struct {
		from string
		says says
		want string
	}{
		{"10.0.0.1", says{}, own},
		{"10.0.0.1", says{"X-Forwarded-Proto": "https"}, secure},
		{"192.0.2.9", says{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "Forwarded": "proto=https;host=evil.example"}, own},
		{"10.0.0.1", says{"X-Forwarded-Proto": "HTTPS", "X-Forwarded-Host": "public.example:8443"}, "https://public.example:8443"},
		{"10.0.0.1", says{"X-Forwarded-Proto": "gopher, https"}, secure},
		{"10.0.0.1", says{"X-Forwarded-Proto": "javascript"}, own},
		{"10.0.0.1", says{"Forwarded": `for=192.0.2.1;proto=https;host="public.example:8443"`}, "https://public.example:8443"},
		{"10.0.0.1", says{"Forwarded": "for=192.0.2.7;host=evil.example, for=192.0.2.1;proto=https"}, secure},
		{"10.0.0.1", says{"Forwarded": "for=192.0.2.7;host=evil.example, for=192.0.2.1;proto=https;host=a.example, for=10.0.0.2;proto=http;host=b"},
			"https://a.example"},
		{"10.0.0.1", says{"Forwarded": "proto=https"}, secure},
		{"10.0.0.1", says{"Forwarded": "proto=http", "X-Forwarded-Proto": "https"}, own},
		{"10.0.0.1", says{"Forwarded": "host=a.example", "X-Forwarded-Host": "b.example"}, own},
		{"10.0.0.1", says{"Forwarded": "proto=https;host=A.example", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example"}, "https://a.example"},
		{"10.0.0.1", says{"Forwarded": `proto="https`}, own},
		{"10.0.0.1", says{"Forwarded": ","}, own},
	} {
		c := &conn{e: f.tcp}
		c.peer = Peer{Addr: netip.MustParseAddr(tt.from), conn: c}
		r := httptest.NewRequest(http.MethodGet, "http://maps.example/", nil)
		r = r.WithContext(WithPeer(r.Context(), &c.peer))
		for name, value := range tt.says {
			r.Header.Set(name, value)
		}
		if scheme, host := Origin(r); scheme+"://"+host != tt.want {
			t.Errorf("%s says %v: %s://%s, want %s", tt.from, tt.says, scheme, host, tt.want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "https://maps.example/", nil)
	r.Header.Set("X-Forwarded-Proto", "http")
	if scheme, host := Origin(r); scheme+"://"+host != secure {
		t.Errorf("over no listener: %s://%s", scheme, host)
	}
}

// Whatever a client sends ahead of what its proxy adds, the proxy's word is what counts.
func TestNothingAheadOfTheProxyMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ahead := rapid.StringMatching(`[-a-z0-9.,:;="\[\] ]{0,40}`).Draw(t, "ahead")
		if got, _ := forwarded(
			http.Header{"X-Forwarded-For": {ahead + ", 192.0.2.1"}},
			proxies,
		); got.String() != "192.0.2.1" {
			t.Fatalf("%q gives %v", ahead, got)
		}
		if got, _ := forwarded(
			http.Header{"Forwarded": {ahead, "for=192.0.2.1"}},
			proxies,
		); got.String() != "192.0.2.1" {
			t.Fatalf("%q gives %v", ahead, got)
		}
	})
}

// No header makes the parsers panic or loop. The result is an address in the header or none, and
// never a proxy with another address to its right.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"192.0.2.1", "1.2.3.4, [::1]:80", `for="[2001:db8::1]:4711";proto=http, for=10.0.0.1`, `for="a\"b";;,=`, "for=;,for", `"`, ",,,", "[", "%", "::1%eth0",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, list, std string) {
		for _, h := range []http.Header{{"X-Forwarded-For": {list}}, {"Forwarded": {std}}, {"X-Forwarded-For": {list, std}, "Forwarded": {std, list}}} {
			got, named := forwarded(h, proxies)
			if !named || got.Zone() != "" || got.Is4In6() {
				t.Errorf("%v gives %v %v", h, got, named)
			}
		}
		if hops := parseForwarded([]string{std}, "for"); len(hops) > strings.Count(std, ",")+1 {
			t.Errorf("%q has %d hops", std, len(hops))
		}
		var hops []string
		for hop := range strings.SplitSeq(list, ",") {
			hops = append(hops, strings.Trim(hop, " \t"))
		}
		if got, want := lastOfList([]string{list}, proxies), rightmost(hops, proxies); got != want {
			t.Errorf("%q gives %v, split %v", list, got, want)
		}
	})
}
