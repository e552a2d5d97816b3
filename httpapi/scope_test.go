package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// A peer of the socket may do what the map gives its uid or gid, and no more.
func TestSocketPeersHaveTheScopesOfTheMap(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) {
		c.UDS.Map = map[string][]string{
			"uid:7": {auth.ScopeAdmin}, "uid:8": {"node.token"}, "uid:9": {"node.drain", "node.metrics"}, "gid:50": {"registry.commit"},
		}
	})
	for _, tt := range []struct {
		uid, gid                             uint32
		status, mint, drain, metrics, commit int
	}{
		{7, 7, 200, 201, 202, 200, 201}, {0, 0, 200, 201, 202, 200, 201}, {8, 8, 403, 201, 403, 403, 403},
		{9, 9, 403, 403, 202, 200, 403}, {10, 50, 403, 403, 403, 403, 201}, {11, 11, 403, 403, 403, 403, 403},
	} {
		as := func(method, path, body string) int {
			return r.as(&front.Peer{Socket: true, UID: tt.uid, GID: tt.gid}, method, path, body, nil).Code
		}
		got := []int{
			as("GET", "/admin/v1/status", ""), as("POST", "/admin/v1/tokens", `{"scopes":["a.b"]}`), as("POST", "/admin/v1/drain", ""),
			as("GET", "/metrics", ""), as("POST", "/registry/commit/"+proposal, ""),
		}
		if want := []int{tt.status, tt.mint, tt.drain, tt.metrics, tt.commit}; !slices.Equal(got, want) {
			t.Errorf("uid %d gid %d: %v, want %v", tt.uid, tt.gid, got, want)
		}
		select {
		case <-r.node.drained:
		default:
		}
	}
	if got := sum(t, r.metrics, "auth_failures_total", "stage", "peer", "surface", "uds"); got != 16 {
		t.Errorf("auth_failures_total{stage=peer} = %v, want 16", got)
	}
	if w := r.as(&front.Peer{Socket: true, UID: 11}, "GET", "/registry/head", "", nil); w.Code != http.StatusOK {
		t.Errorf("what is public is public on the socket too: %d", w.Code)
	}
}

// asker is an authority that notes what it was asked.
type asker struct{ asked []auth.Request }

func (a *asker) Check(_ string, r auth.Request) (engines.Actor, error) {
	a.asked = append(a.asked, r)
	return engines.Actor{CapID: "tid", Principal: "p", Admin: true}, nil
}

// Each row asks for its own scope, before its body is looked at.
func TestEveryRouteAsksForItsScope(t *testing.T) {
	for _, route := range newRig(t).routes {
		if !protected(&route) || route.Socket {
			continue
		}
		a := &asker{}
		r := newRig(t, func(c *Settings, d *Deps) { c.Server.AdminOnTCP, d.Auth = true, a })
		path := strings.NewReplacer(":id", proposal, ":kid", "k1", ":txid", txid).Replace(route.Pattern)
		method := route.Method
		if route.Class == ClassStream {
			method = http.MethodHead
		}
		r.do(method, path, "not json", header{"Authorization": "Bearer x"})
		if len(a.asked) != 1 {
			t.Errorf("%s %s: asked %d times", method, path, len(a.asked))
			continue
		}
		if q := a.asked[0]; q.Scope != route.Scope || q.Service != route.Service || q.Path != path || q.Method != route.Method || q.Bytes != 8 {
			t.Errorf("%s %s: asked for %+v", method, path, q)
		}
	}
}

// A token shown on the socket narrows what the map gives: being admin takes both.
func TestAnActorIsAdminByBoth(t *testing.T) {
	a := &asker{}
	r := newRig(t, func(c *Settings, d *Deps) {
		d.Auth = a
		c.UDS.Map = map[string][]string{"uid:7": {auth.ScopeAdmin}, "uid:8": {"registry.commit"}}
	})
	for uid, want := range map[uint32]bool{7: true, 8: false} {
		r.as(&front.Peer{Socket: true, UID: uid}, "POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer x"})
		if got := r.reg.actor; got.Admin != want || got.UID == nil || *got.UID != uid || got.CapID != "tid" {
			t.Errorf("uid %d: actor %+v, want admin %v", uid, got, want)
		}
	}
}

// No answer repeats a token, a body or what else was not judged.
func TestAnswersRepeatNothing(t *testing.T) {
	const mark = "s3cretmark"
	r := newRig(t, func(_ *Settings, d *Deps) { d.Auth = auth.New(auth.DefaultConfig(), nil) })
	for _, tt := range []struct {
		method, path, body string
		h                  header
	}{
		{"POST", "/registry/commit/" + proposal, "", header{"Authorization": "Bearer " + mark}},
		{"POST", "/registry/commit/" + mark, "", header{"Authorization": mark}},
		{"GET", "/registry/" + mark, "", nil}, {"GET", "/" + mark, "", nil}, {mark, "/registry/head", "", nil},
		{"GET", "/registry/diff?from=" + mark + "&to=1", "", nil}, {"GET", "/registry/proposals?cursor=" + mark, "", nil},
		{"GET", "/readyz?service=" + mark, "", nil}, {"GET", "/readyz?plane=" + mark, "", nil},
		{"GET", "/registry/head", "", header{"Deadline": mark}}, {"GET", "/registry/head", "", header{"Request-Timeout": mark}},
		{"GET", "/registry/stream", "", header{"Last-Event-ID": mark}}, {"GET", "/registry/head", "", header{"X-Corr-ID": mark}},
		{"GET", "/schema/" + mark, "", nil},
	} {
		if w := r.do(tt.method, tt.path, tt.body, tt.h); strings.Contains(w.Body.String(), mark) || w.Code >= 500 {
			t.Errorf("%s %s %v: %d %s", tt.method, tt.path, tt.h, w.Code, w.Body)
		}
	}
	for _, body := range []string{`{"reason":1,"x":"` + mark + `"}`, `{"reason":{"` + "reason" + `":"` + mark + `"}}`, mark, `["` + mark + `"]`, `{"reason":"` + mark} {
		if w := r.socket("POST", "/admin/v1/drain", body, nil); w.Code != 400 || strings.Contains(w.Body.String(), mark) {
			t.Errorf("body %s: %d %s", body, w.Code, w.Body)
		}
	}
}
