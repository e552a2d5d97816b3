package index

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
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
