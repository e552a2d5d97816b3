package httpapi

import (
	"net/http"
	"testing"
	"time"
)

func TestGateLetsIn(t *testing.T) {
	type want struct{ bypass, read, write, stream, status, snapshot, drain int }
	for _, tt := range []struct {
		gates []Gate
		want  want
	}{
		{[]Gate{}, want{200, 503, 503, 503, 503, 503, 503}},
		{[]Gate{GateOpen}, want{200, 200, 201, 200, 200, 200, 202}},
		{[]Gate{GateOpen, GateDraining}, want{200, 200, 503, 503, 200, 503, 202}},
		{[]Gate{GateOpen, GateDraining, GateClosed}, want{200, 503, 503, 503, 503, 503, 503}},
		{[]Gate{GateClosed, GateOpen}, want{200, 503, 503, 503, 503, 503, 503}},
	} {
		r := newRig(t)
		r.gate = newGate()
		for _, g := range tt.gates {
			r.SetGate(g)
		}
		got := want{
			r.do("GET", "/healthz", "", nil).Code, r.do("GET", "/registry/head", "", nil).Code,
			r.do("POST", "/registry/commit/"+proposal, "", writer).Code, r.do("HEAD", "/registry/stream", "", nil).Code,
			r.socket("GET", "/admin/v1/status", "", nil).Code, r.socket("POST", "/admin/v1/db/snapshot", `{"dir":"/x"}`, nil).Code,
			r.socket("POST", "/admin/v1/drain", "", nil).Code,
		}
		if got != tt.want {
			t.Errorf("gates %v: %+v, want %+v", tt.gates, got, tt.want)
		}
	}
}

func TestDrainClosesConnectionsAndSaysWhenToComeBack(t *testing.T) {
	r := newRig(t)
	r.SetGate(GateDraining)
	read, write := r.do("GET", "/registry/head", "", nil), r.do("POST", "/registry/commit/"+proposal, "", writer)
	if read.Code != http.StatusOK || read.Header().Get("Connection") != "close" || write.Header().Get("Connection") != "close" {
		t.Errorf("read %d %q, write %q", read.Code, read.Header().Get("Connection"), write.Header().Get("Connection"))
	}
	p := problemIn(t, write.Body.String())
	if p.Reason != "draining" || p.RetryAfter != 10 || r.reg.calls != 0 {
		t.Errorf("told %+v after %d calls of the engine", p, r.reg.calls)
	}
}

func TestDrainRetryAfterCountsDown(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRig(t, func(_ *Settings, d *Deps) { d.Now = func() time.Time { return now } })
	r.SetGate(GateDraining)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 10}, {2 * time.Second, 8}, {time.Minute, 5}} {
		now = time.Unix(1000, 0).Add(tt.after)
		if got := r.retryAfter(r.live.Load(), serviceNode, waitDrain, nil); got != tt.want {
			t.Errorf("%s into the drain: Retry-After %d, want %d", tt.after, got, tt.want)
		}
	}
}

func TestReadyzFollowsTheGate(t *testing.T) {
	r := newRig(t)
	r.gate = newGate()
	for _, tt := range []struct {
		gate              Gate
		all, read, writes int
	}{
		{GateStarting, 503, 503, 503}, {GateOpen, 200, 200, 200}, {GateDraining, 503, 200, 503}, {GateClosed, 503, 503, 503},
	} {
		r.SetGate(tt.gate)
		all, read, writes := r.do("GET", "/readyz", "", nil), r.do("GET", "/readyz?plane=read", "", nil), r.do("GET", "/readyz?plane=write", "", nil)
		if all.Code != tt.all || read.Code != tt.read || writes.Code != tt.writes {
			t.Errorf("%v: readyz %d, read %d, write %d; want %d %d %d", tt.gate, all.Code, read.Code, writes.Code, tt.all, tt.read, tt.writes)
		}
		if all.Code == 503 && all.Header().Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", tt.gate)
		}
	}
}
