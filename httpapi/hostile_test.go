package httpapi

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/registry"
)

// A length beside the chunks was dropped unseen by net/http, so that no other request may follow on the connection,
// whatever became of this one.
func TestChunkedRequestsCloseTheirConnection(t *testing.T) {
	r := newRig(t).listening(t)
	for _, target := range []string{"GET /healthz", "GET /registry/head", "GET /nowhere", "POST /registry/proposals", "PUT /registry/head"} {
		c := r.dial(t)
		_, _ = io.WriteString(c, target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
			"GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n")
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if rest, _ := io.ReadAll(in); !resp.Close || len(rest) > 0 {
			t.Errorf("%s: close %v, then %q", target, resp.Close, rest)
		}
	}
}

func TestOptionsOfTheServerIsAnsweredLikeAnyOther(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readStatus(t, c); got != http.StatusNotFound {
		t.Errorf("%d, want 404", got)
	}
	if got := sum(t, r.metrics, "http_requests_total", "method", "OPTIONS"); got != 1 {
		t.Errorf("counted %v times", got)
	}
}

// What does not exist on TCP has no methods there either.
func TestHiddenRoutesHaveNoMethods(t *testing.T) {
	admin := newRig(t, func(c *Settings, _ *Deps) { c.Server.AdminOnTCP = true })
	for _, tt := range []struct {
		r            *rig
		method, path string
		tcp, socket  int
	}{
		{newRig(t), "DELETE", "/admin/v1/status", 404, 405}, {newRig(t), "DELETE", "/admin/v1/tokens", 404, 405}, {newRig(t), "GET", "/admin/v1/keys/k1/retire", 404, 405},
		{newRig(t), "GET", "/admin/v1/registry/genesis", 404, 405},
		{admin, "DELETE", "/admin/v1/status", 405, 405}, {admin, "GET", "/admin/v1/registry/genesis", 404, 405},
	} {
		tcp, socket := tt.r.do(tt.method, tt.path, "", nil), tt.r.socket(tt.method, tt.path, "", nil)
		if tcp.Code != tt.tcp || socket.Code != tt.socket || (tcp.Header().Get("Allow") == "") == (tt.tcp == 405) {
			t.Errorf("%s %s: TCP %d, socket %d, want %d and %d", tt.method, tt.path, tcp.Code, socket.Code, tt.tcp, tt.socket)
		}
	}
}

func TestEveryDrainingAnswerClosesItsConnection(t *testing.T) {
	closed, late := newRig(t), newRig(t)
	closed.SetGate(GateClosed)
	late.reg.set(flow.ErrClosed) // the queue closed under a request that the gate had let in
	for doc, r := range map[string]*rig{"gate closed": closed, "queue closed": late} {
		w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d, Connection %q", doc, w.Code, w.Header().Get("Connection"))
		}
	}
}

func TestPayloadMustBeAnObject(t *testing.T) {
	r := newRig(t)
	for _, v := range []string{`"x"`, `1`, `[]`, `true`} {
		a := r.do(http.MethodPost, "/registry/proposals", `{"schema_version":"1.0.0","payload":`+v+`}`, writer)
		b := r.socket(http.MethodPost, "/admin/v1/registry/genesis", `{"payload":`+v+`,"approvals":[]}`, nil)
		for _, w := range []string{a.Body.String(), b.Body.String()} {
			if p := problemIn(t, w); p.Status != http.StatusBadRequest || p.Details["field"] != "payload" || r.reg.calls != 0 {
				t.Errorf("payload %s: %s", v, w)
			}
		}
	}
}

// A stream that the bus left behind only in what it had told already has missed nothing.
func TestStreamIsSilentAboutLagThatMissedNothing(t *testing.T) {
	r := newRig(t)
	sub := r.reg.bus.Subscribe(consumerSSE)
	defer sub.Close()
	for v := uint64(4); v <= 23; v++ {
		r.commit(v)
	}
	rec := &recorder{header: http.Header{}}
	st := r.feed(t, rec, sub, 23) // as after a replay
	for !drained(st) {
		if err := st.next(); err != nil {
			t.Fatal(err)
		}
	}
	if got := rec.body.String() + string(st.out.buf); got != "" {
		t.Errorf("told %q", got)
	}
}

// A client that stops reading is dropped within the write timeout, and its place is free again.
func TestStalledStreamIsClosed(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.WriteTimeout = unit.Duration(100 * time.Millisecond) }).listening(t)
	r.reg.since = func(after uint64, limit int) ([]registry.Event, error) {
		return []registry.Event{{Version: after + 1, CorrID: strings.Repeat("x", 1<<20)}}, nil
	}
	r.reg.moveHead(1000)
	c := r.dial(t)
	_, _ = io.WriteString(c, "GET /registry/stream HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\n\r\n")
	waitFor(t, "event that is not taken", func() bool { return sum(t, r.metrics, "io_timeouts_total", "op", "write", "service", "registry") == 1 })
	waitFor(t, "end of the stream", func() bool { return r.streams.count() == 0 && sum(t, r.metrics, "conns_open", "listener", "http") == 0 })
}
