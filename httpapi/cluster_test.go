package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/httpapi"
	clusterhttp "ronbox/httpapi/cluster"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// fakeMembers is a cluster of one; every call returns err, if it is set.
type fakeMembers struct {
	err    error
	by     engines.Actor
	corrID string
	asked  any // the last operation
}

func (f *fakeMembers) Status(context.Context) (clusterapi.ClusterStatus, error) {
	one := clusterapi.Member{ID: nodeA, Role: clusterapi.RoleVoter, URL: "http://127.0.0.1:9301", Healthy: true}
	return clusterapi.ClusterStatus{Self: nodeA, Leader: nodeA, Members: []clusterapi.Member{one}}, f.err
}

func (f *fakeMembers) note(by engines.Actor, corrID string, asked any) error {
	f.by, f.corrID, f.asked = by, corrID, asked
	return f.err
}

func (f *fakeMembers) Init(
	_ context.Context, by engines.Actor, corrID string, r clusterapi.InitRequest,
) (clusterapi.Inited, error) {
	return clusterapi.Inited{Cluster: someULID, ID: nodeA}, f.note(by, corrID, r)
}

func (f *fakeMembers) Token(
	_ context.Context, by engines.Actor, corrID string, r clusterapi.JoinTokenRequest,
) (clusterapi.JoinToken, error) {
	t := clusterapi.JoinToken{Token: "t", URL: "https://127.0.0.1:7946", ExpiresAt: wire.Instant{Time: time.Unix(1, 0).UTC()}}
	return t, f.note(by, corrID, r)
}

func (f *fakeMembers) Leave(
	_ context.Context, by engines.Actor, corrID string, r clusterapi.LeaveRequest,
) (clusterapi.Removed, error) {
	return clusterapi.Removed{ID: nodeA}, f.note(by, corrID, r)
}

func (f *fakeMembers) Remove(
	_ context.Context, by engines.Actor, corrID, id string,
) (clusterapi.Removed, error) {
	return clusterapi.Removed{ID: id}, f.note(by, corrID, id)
}

func (f *fakeMembers) Rotate(_ context.Context, by engines.Actor, corrID string) (clusterapi.Rotated, error) {
	ends := wire.Instant{Time: time.Unix(1, 0).UTC()}
	return clusterapi.Rotated{CertificateEnds: ends}, f.note(by, corrID, clusterapi.RotateRequest{})
}

func (f *fakeMembers) Transfer(
	_ context.Context, by engines.Actor, corrID, id string,
) (clusterapi.Transferred, error) {
	return clusterapi.Transferred{From: nodeA, To: nodeB, TookMS: 7}, f.note(by, corrID, id)
}

func clusterCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"cluster status": func() error { return only(c.ClusterStatus(ctx)) },
		"init":           func() error { return only(c.InitCluster(ctx, clusterapi.InitRequest{Advertise: "a:1"})) },
		"token":          func() error { return only(c.MintClusterToken(ctx, clusterapi.JoinTokenRequest{Standby: true})) },
		"leave":          func() error { return only(c.LeaveCluster(ctx, clusterapi.LeaveRequest{Last: true})) },
		"remove":         func() error { return only(c.RemoveMember(ctx, nodeB)) },
		"rotate":         func() error { return only(c.RotateCertificate(ctx)) },
		"transfer":       func() error { return only(c.TransferLeadership(ctx, nodeB)) },
	}
}

func TestClusterOperations(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		route, body string
		want        any
		field       string // of a 400
	}{
		{"init", `{}`, clusterapi.InitRequest{}, ""},
		{"init", `{"advertise":"[::1]:7946"}`, clusterapi.InitRequest{Advertise: "[::1]:7946"}, ""},
		{"init", `{"advertise":"node1"}`, nil, "advertise"},
		{"init", `{"advertise":":7946"}`, nil, "advertise"},
		{"init", `{"advertise":"node1:0"}`, nil, "advertise"},
		{"tokens", `{"standby":true}`, clusterapi.JoinTokenRequest{Standby: true}, ""},
		{"leave", `{"last":true}`, clusterapi.LeaveRequest{Last: true}, ""},
		{"leave", `{"first":true}`, nil, "first"},
		{"remove", `{"id":"` + nodeB + `"}`, nodeB, ""},
		{"remove", `{}`, nil, "id"},
		{"rotate", `{}`, clusterapi.RotateRequest{}, ""},
		{"rotate", ``, clusterapi.RotateRequest{}, ""},
		{"rotate", `{"id":"` + nodeB + `"}`, nil, "id"},
		{"transfer", `{"id":"` + nodeB + `"}`, nodeB, ""},
		{"transfer", `{"id":""}`, "", ""},
		{"transfer", `{"id":"b"}`, nil, "id"},
	} {
		r.members.asked = nil
		w := r.socket("POST", "/admin/v1/cluster/"+tt.route, tt.body, header{"X-Corr-ID": someULID})
		if tt.field != "" {
			if w.Code != 400 || problemIn(t, w.Body.String()).Details["field"] != tt.field || r.members.asked != nil {
				t.Errorf("%s %s: %d %s", tt.route, tt.body, w.Code, w.Body)
			}
			continue
		}
		if w.Code != 200 || r.members.asked != tt.want || r.members.by.Principal != "uid:7" ||
			r.members.corrID != someULID {
			t.Errorf("%s %s: %d %s, asked %+v", tt.route, tt.body, w.Code, w.Body, r.members)
		}
	}
	r.members.err = &clusterhttp.ConflictError{Reason: "the node is a member already"}
	w := r.socket("POST", "/admin/v1/cluster/init", `{}`, nil)
	if got := problemIn(t, w.Body.String()); w.Code != 409 || got.Detail != "the node is a member already" {
		t.Errorf("%d %+v", w.Code, got)
	}
	r.members.err = &clusterhttp.StayedError{Reason: "no answer"}
	w = r.socket("POST", "/admin/v1/cluster/transfer", `{"id":""}`, nil)
	if got := problemIn(t, w.Body.String()); w.Code != 503 || got.Detail != "no answer" || !got.Retryable {
		t.Errorf("%d %+v", w.Code, got)
	}
	r.members.err = httpapi.ErrNoSuch
	if w := r.socket("POST", "/admin/v1/cluster/remove", `{"id":"`+nodeB+`"}`, nil); w.Code != 404 {
		t.Errorf("an unknown member: %d", w.Code)
	}
	if w := r.do("GET", "/admin/v1/cluster/status", "", writer); w.Code != 404 {
		t.Errorf("over TCP: %d", w.Code)
	}
}

// The routes that every node of a cluster answers itself. All others are answered by the leader.
func TestLocalRoutes(t *testing.T) {
	want := strings.Fields(`
		POST /admin/v1/cluster/init POST /admin/v1/cluster/leave POST /admin/v1/cluster/rotate GET /admin/v1/cluster/status
		GET /admin/v1/clock POST /admin/v1/clock/accept
		GET /admin/v1/config POST /admin/v1/config/reload GET /admin/v1/debug/profile/:profile POST /admin/v1/drain
		GET /admin/v1/doctor GET /admin/v1/log-level PUT /admin/v1/log-level GET /admin/v1/queues
		GET /admin/v1/series GET /admin/v1/sessions DELETE /admin/v1/sessions/:session GET /admin/v1/snapshots
		GET /admin/v1/status GET /admin/v1/tasks GET /admin/v1/archive POST /admin/v1/archive/base
		GET /admin/v1/db/info GET /admin/v1/db/stats POST /admin/v1/db/check POST /admin/v1/db/snapshot
		GET /healthz GET /readyz GET /metrics GET /version GET /openapi.json GET /schema/:name
		PUT /edge/packs/:file DELETE /edge/packs/:file
		GET /edge/extracts POST /edge/extracts DELETE /edge/extracts/:pack
		PUT /routing/v1/providers PUT /routing/v1/providers/:cid GET /routing/v1/dht/closest/peers/:cid
		GET /routing/v1/peers/:peer GET /routing/v1/ipns/:ipns PUT /routing/v1/ipns/:ipns`)
	var local, listed []string
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.rest = true })
	for _, route := range r.Table() {
		if !slices.Contains(httpapi.Stages(&route), "forward") {
			local = append(local, route.Method+" "+route.Pattern)
		}
	}
	for pair := range slices.Chunk(want, 2) {
		listed = append(listed, strings.Join(pair, " "))
	}
	slices.Sort(local)
	slices.Sort(listed)
	if !slices.Equal(local, listed) {
		t.Errorf("local %q, want %q", local, listed)
	}
}

// A follower answers local routes itself, and forwards the operations of the leader.
func TestClusterRoutesOfAFollower(t *testing.T) {
	p := newPair(t, nil)
	own := &front.Peer{Socket: true}
	if w := p.b.as(own, http.MethodGet, "/admin/v1/cluster/status", "", nil); w.Code != 200 {
		t.Errorf("status: %d %s", w.Code, w.Body)
	}
	if w := p.b.as(own, "POST", "/admin/v1/cluster/leave", `{}`, nil); w.Code != 200 || p.b.members.asked == nil {
		t.Errorf("leave: %d %s", w.Code, w.Body)
	}
	w := p.b.as(own, "POST", "/admin/v1/cluster/tokens", `{}`, nil)
	if w.Code != 200 || p.a.members.by.Principal != nodeB+"/uid:0" {
		t.Errorf("token: %d %s by %+v", w.Code, w.Body, p.a.members.by)
	}
}
