package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// auditStream follows the audit stream as a peer of the socket until the node stops, while during makes things happen.
func (r *rig) auditStream(t *testing.T, last string, during func()) string {
	t.Helper()
	rec := &recorder{header: http.Header{}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/v1/audit/stream", nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	req = req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7}))
	go func() {
		synctest.Wait()
		during()
		synctest.Wait()
		r.SetGate(GateClosed)
	}()
	r.router.ServeHTTP(rec, req)
	r.described(req, http.StatusOK, rec.header, []byte(rec.body.String()))
	return strings.ReplaceAll(rec.body.String(), "\n", "|")
}

func frame(id int) string {
	return "id: " + formatUint(uint64(id)) + "|event: audit|data: {\"seq\":" + formatUint(uint64(id)) + ","
}

func TestAuditStream(t *testing.T) {
	const hello = `event: hello|data: {"incarnation":"01INCARNATION","last":3}||`
	for _, tt := range []struct {
		doc, last string
		rows      int // before
		tell      int // rows during
		want      []string
		silent    []string
	}{
		{"from now on", "", 3, 2, []string{hello, frame(4), frame(5), "event: shutdown"}, []string{frame(1), frame(3), "lagged"}},
		{"what was missed first", "1", 3, 1, []string{hello, frame(2), frame(3), frame(4)}, []string{frame(1)}},
		{"nothing missed", "3", 3, 1, []string{hello, frame(4)}, []string{frame(3), "lagged"}},
		{"from the beginning", "0", 3, 0, []string{hello, frame(1), frame(2), frame(3)}, nil},
		{"more than is replayed", "1", 1002, 1, []string{`id: 1002|event: lagged|data: {"missed":1001,"from":2,"to":1002,"last":1002}`, frame(1003)}, []string{frame(2)}},
		{"ahead of a restored node", "9", 3, 1, []string{hello, `id: 3|event: lagged|data: {"missed":0,`, frame(4)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			for range tt.rows {
				r.node.note(false)
			}
			got := r.auditStream(t, tt.last, func() {
				for range tt.tell {
					r.node.note(true)
					synctest.Wait()
				}
			})
			at := 0
			for _, w := range tt.want {
				i := strings.Index(got[at:], w)
				if i < 0 {
					t.Fatalf("%s: %s\nlacks %s in its place", tt.doc, got, w)
				}
				at += i
			}
			for _, s := range tt.silent {
				if strings.Contains(got, s) {
					t.Errorf("%s: %s\ntells %s", tt.doc, got, s)
				}
			}
		})
	}
}

// A client that does not keep up is told what it missed, not made to wait for.
func TestAuditStreamTellsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sub := r.node.bus.Subscribe(consumerAudit)
		defer sub.Close()
		for range 20 { // the bus of the rig holds 8
			r.node.note(true)
		}
		rec := &recorder{header: http.Header{}}
		c := &call{w: rec, r: newRequest(t), route: &Route{}, peer: &front.Peer{}, live: r.live.Load()}
		c.base = c.r.Context()
		f := &feed[wire.AuditRow]{source: r.auditSource(), s: r.Server, c: c, sub: sub, out: openSSE(c)}
		for sub.Stats().Pending > 0 {
			if err := f.next(); err != nil {
				t.Fatal(err)
			}
		}
		got := strings.ReplaceAll(rec.body.String(), "\n", "|")
		if got != `id: 20|event: lagged|data: {"missed":20,"from":1,"to":20,"last":20}||` {
			t.Errorf("told %s", got)
		}
		if n := sum(t, r.metrics, "bus_lagged_total"); n == 0 {
			t.Error("bus_lagged_total stands still")
		}
	})
}

func TestAuditStreamPingsAndEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Settings, _ *Deps) { c.SSE.Ping = unit.Duration(15 * time.Second) })
		ctx, cancel := context.WithTimeout(front.WithPeer(t.Context(), &front.Peer{Socket: true, UID: 7}), 46*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/admin/v1/audit/stream", nil)
		rec := &recorder{header: http.Header{}}
		r.router.ServeHTTP(rec, req)
		if got := strings.Count(rec.body.String(), ": ping\n\n"); got != 3 || r.auditStreams.count() != 0 {
			t.Errorf("%d pings in 46 s, %v streams left", got, r.auditStreams.count())
		}
	})
}

func TestAuditStreamRefusals(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.SSE.MaxClients = 0 })
	if w := r.socket(http.MethodHead, "/admin/v1/audit/stream", "", nil); w.Code != http.StatusTooManyRequests {
		t.Errorf("without a place: %d", w.Code)
	}
	r = newRig(t)
	for _, tt := range []struct {
		last   string
		err    error
		status int
	}{{"", nil, 200}, {"x", nil, 400}, {"", store.ErrPoisoned, 503}, {"", flow.ErrClosed, 503}} {
		r.node.err = tt.err
		if w := r.socket(http.MethodHead, "/admin/v1/audit/stream", "", header{"Last-Event-ID": tt.last}); w.Code != tt.status {
			t.Errorf("%q, %v: %d, want %d", tt.last, tt.err, w.Code, tt.status)
		}
	}
	if w := r.do(http.MethodGet, "/admin/v1/audit/stream", "", writer); w.Code != http.StatusNotFound {
		t.Errorf("over TCP: %d", w.Code)
	}
}
