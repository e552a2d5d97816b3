package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/httpapi/front"
)

// told is an answer without what differs from call to call.
func (r *rig) told(method, path string, h header) string {
	h = mapsWith(h, "X-Corr-ID", someULID)
	w := r.as(&front.Peer{}, method, path, "", h)
	var lines []string
	for name, v := range w.Header() {
		lines = append(lines, name+": "+strings.Join(v, ", "))
	}
	slices.Sort(lines)
	return w.Result().Status + "\n" + strings.Join(lines, "\n") + "\n" + w.Body.String()
}

func mapsWith(h header, name, value string) header {
	out := header{name: value}
	for k, v := range h {
		out[k] = v
	}
	return out
}

// A route that is hidden from a peer is told like a path that nothing has, whatever is asked of it and whenever.
func TestHiddenIsLikeUnknown(t *testing.T) {
	full := func(c *Settings, _ *Deps) { c.Limits[serviceNode] = Limits{Inflight: 0} }
	for _, tt := range []struct {
		doc, query string
		gate       Gate
		h          header
		change     func(*Settings, *Deps)
	}{
		{doc: "as it is", gate: GateOpen},
		{doc: "with a query", query: "?from=1", gate: GateOpen},
		{doc: "with a token", gate: GateOpen, h: writer},
		{doc: "with a bad deadline", gate: GateOpen, h: header{"Deadline": "x"}},
		{doc: "while the node drains", gate: GateDraining},
		{doc: "when the node is closed", gate: GateClosed},
		{doc: "without a place", gate: GateOpen, change: full},
	} {
		change := tt.change
		if change == nil {
			change = func(*Settings, *Deps) {}
		}
		r := newRig(t, change)
		r.SetGate(tt.gate)
		for _, route := range r.routes {
			if !route.Admin {
				continue
			}
			hidden, unknown := r.told(route.Method, route.target()+tt.query, tt.h), r.told(route.Method, "/admin/v1/nothing"+tt.query, tt.h)
			if hidden != unknown {
				t.Errorf("%s %s, %s:\n%s\nwhat is not there:\n%s", route.Method, route.Pattern, tt.doc, hidden, unknown)
			}
		}
	}
}

// What has no row has no parameters that could be wrong: the path or the method is.
func TestWhatHasNoRowHasNoQuery(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/nowhere?x=1", 404}, {"GET", "/nowhere?x=%zz", 404}, {"PUT", "/registry/diff?from=1&to=2", 405},
	} {
		if w := r.do(tt.method, tt.path, "", nil); w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
	}
}

// Paths that nothing has take no place of a probe's.
func TestProbesShareNoPlaceWithStrangers(t *testing.T) {
	r := newRig(t)
	for range bypassInflight {
		r.bypass.enter()
	}
	if w := r.do(http.MethodGet, "/nowhere", "", nil); w.Code != http.StatusNotFound {
		t.Errorf("%d with 64 probes inside", w.Code)
	}
}
