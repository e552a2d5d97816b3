package index

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	indexapi "ronbox/httpapi/wire/index"
)

// Delegated Routing answers with one record per line if the client accepts lines at least as much
// as a document.
func TestRoutingIsNegotiated(t *testing.T) {
	r := newRig(t)
	r.engine.set.Providers = []name.Provider{{Peer: somePeer, Addrs: []string{someAddr}}}
	for accept, want := range map[string]string{
		"": httpapi.TypeJSON, "*/*": httpapi.TypeJSON, "application/json": httpapi.TypeJSON, "application/x-ndjson": httpapi.TypeLines,
		"Application/X-NDJSON": httpapi.TypeLines, "application/x-ndjson,application/json": httpapi.TypeLines,
		"application/json, application/x-ndjson;q=0.9": httpapi.TypeJSON, "application/json;q=0.4, application/x-ndjson;q=0.5": httpapi.TypeLines,
		"application/x-ndjson;q=0": httpapi.TypeJSON, "application/x-ndjson-not": httpapi.TypeJSON,
	} {
		w := r.do(http.MethodGet, "/routing/v1/providers/"+someB3, "", http.Header{"Accept": {accept}})
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want {
			t.Errorf("Accept %q: %d %q, want %q", accept, w.Code, w.Header().Get("Content-Type"), want)
		}
	}
}

// Answers for nodes and for clients vary for caches: an answer for a node is signed, or ignores
// peers.
func TestAnswersToNodesAreKeptApart(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/resolve/name:docs.example", "/providers/" + someB3, "/routing/v1/providers/" + someB3} {
		for _, h := range []http.Header{{}, {hopHeader: {"0"}}} {
			if got := r.do(http.MethodGet, path, "", h).Header()["Vary"]; !slices.ContainsFunc(
				got,
				func(v string) bool { return strings.Contains(v, hopHeader) },
			) {
				t.Errorf("%s with %v: Vary %q", path, h, got)
			}
		}
	}
}

// filtered returns the ids and the addresses of an answer of Delegated Routing.
func filtered(r *rig, query string) string {
	doc := read[indexapi.Routing](r, r.do(http.MethodGet, "/routing/v1/providers/"+someB3+query, "", nil), http.StatusOK)
	var out []string
	for _, p := range doc.Providers {
		out = append(out, p.ID[:2]+strings.Join(p.Addrs, " "))
	}
	return strings.Join(out, "; ")
}

// The filters of IPIP-484 remove addresses and providers, in any letter case and any order. The
// hosts of addresses are no protocols.
func TestRoutingFilters(t *testing.T) {
	r := newRig(t)
	const a, b, c = "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/udp/1/quic-v1", "/dns4/udp/tcp/443/tls/http"
	r.engine.set.Providers = []name.Provider{
		{Peer: "1.", Addrs: []string{a, b}}, {Peer: "2.", Addrs: []string{c}}, {Peer: "3.", Addrs: []string{}},
	}
	const all = "1." + a + " " + b + "; 2." + c + "; 3."
	for query, want := range map[string]string{
		"":                                            all,
		"?filter-addrs=&filter-protocols=":            all,
		"?whatever=1":                                 all,
		"?filter-addrs=udp":                           "1." + b,
		"?filter-addrs=quic-v1,TLS":                   "1." + b + "; 2." + c,
		"?filter-addrs=unknown":                       all,
		"?filter-addrs=webtransport,unknown":          "3.",
		"?filter-addrs=!udp":                          "1." + a + "; 2." + c,
		"?filter-addrs=unknown,!udp":                  "1." + a + "; 2." + c + "; 3.",
		"?filter-addrs=tcp,!tls":                      "1." + a,
		"?filter-addrs=!tls,tcp,unknown":              "1." + a + "; 3.",
		"?filter-addrs=webtransport":                  "",
		"?filter-protocols=transport-bitswap":         "",
		"?filter-protocols=unknown,transport-bitswap": all,
		"?filter-protocols=transport-bitswap,UNKNOWN&filter-addrs=quic-v1": "1." + b,
	} {
		if got := filtered(r, query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if got := r.engine.set.Providers[0].Addrs; got[0] != a || got[1] != b {
		t.Errorf("the engine's addresses are changed: %q", got)
	}
}

// Operations of Delegated Routing that this node does not have are 501, and pages of any origin may
// read each answer below /routing/v1.
func TestRoutingForPages(t *testing.T) {
	r := newRig(t)
	page := http.Header{"Origin": {"https://page.example"}, "Access-Control-Request-Method": {"GET"}}
	const peer, ipns = "peers/12D3KooWM8sovaEGU1bmiWGWAzvs47DEcXKZZTuJnpQyVTkRs2Vn", "ipns/k51qzi5uqu5dgutdk6i1"
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "providers/" + someB3, "", 200}, {"HEAD", "providers/" + someB3, "", 200},
		{"OPTIONS", "providers/" + someB3, "", 204}, {"GET", "providers/nonsense", "", 400},
		{"POST", "providers/" + someB3, "", 405},
		{"PUT", "providers", `{"Providers":[]}`, 501}, {"PUT", "providers/" + someB3, "{}", 501},
		{"OPTIONS", "providers", "", 204},
		{"GET", peer, "", 501}, {"HEAD", peer, "", 501}, {"OPTIONS", peer, "", 204},
		{"GET", ipns, "", 501}, {"PUT", ipns, "record", 501}, {"OPTIONS", ipns, "", 204},
		{"GET", "dht/closest/peers/" + someB3, "", 501},
	} {
		w := r.do(tt.method, "/routing/v1/"+tt.path, tt.body, page)
		h := w.Header()
		if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != "*" ||
			h.Get("Cross-Origin-Resource-Policy") != "cross-origin" || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s %s: %d %v %s", tt.method, tt.path, w.Code, h, w.Body)
		}
		if tt.status == 501 && tt.method != "HEAD" && read[wire.Problem](r, w, 501).Reason != "not_implemented" {
			t.Errorf("%s %s: %s", tt.method, tt.path, w.Body)
		}
		if tt.status == 204 && (h.Get("Access-Control-Allow-Headers") != "*" || h.Get("Access-Control-Allow-Methods") == "") {
			t.Errorf("%s: %v", tt.path, h)
		}
	}
}
