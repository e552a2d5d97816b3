package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/registry/document"
	registryapi "ronbox/httpapi/registry"

	"ronbox/httpapi"

	"ronbox/appliance/flow"
	"ronbox/httpapi/front"
)

// frames reads an event stream.
type frames struct {
	t    *testing.T
	resp *http.Response
	r    *bufio.Reader
	stop context.CancelFunc
}

func (r *rig) stream(t *testing.T, last string) *frames {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/registry/stream", nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	f := &frames{t: t, resp: resp, r: bufio.NewReader(resp.Body), stop: cancel}
	t.Cleanup(f.close)
	return f
}

func (f *frames) close() {
	f.stop()
	_ = f.resp.Body.Close()
}

// next returns the next frame as its lines joined by "|", or "" at the end of the stream.
func (f *frames) next() string {
	f.t.Helper()
	var lines []string
	for {
		line, err := f.r.ReadString('\n')
		if err != nil {
			return strings.Join(lines, "|")
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return strings.Join(lines, "|")
		}
		lines = append(lines, line)
	}
}

func (f *frames) want(all ...string) {
	f.t.Helper()
	for _, w := range all {
		if got := f.next(); !strings.HasPrefix(got, w) {
			f.t.Fatalf("frame %q, want %q", got, w)
		}
	}
}

var hello3 = `event: hello|data: {"incarnation":"01INCARNATION","head":` + headJSON(3) + "}"

func event(v uint64) document.Update {
	return document.Update{Version: v, Kind: "update", CommittedAt: someTime}
}

// commit moves HEAD, then tells, as the engine does.
func (r *rig) commit(v uint64) {
	r.reg.moveHead(v)
	r.reg.bus.Publish(event(v))
}

func TestStreamTellsHelloThenUpdates(t *testing.T) {
	r := newRig(t).listening(t)
	f := r.stream(t, "")
	if f.resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("headers %v", f.resp.Header)
	}
	f.want("retry: 3000", hello3)
	r.commit(4)
	r.commit(5)
	f.want(`id: 4|event: registry.update|data: {"version":4,`, `id: 5|event: registry.update|data: {"version":5,`)
}

// An event that HEAD covers already, since it was published between subscribing and reading HEAD,
// is not told again.
func TestStreamSkipsWhatHelloCovers(t *testing.T) {
	r := newRig(t).listening(t)
	f := r.stream(t, "")
	f.want("retry: 3000", hello3)
	r.reg.bus.Publish(event(2))
	r.reg.bus.Publish(event(3))
	r.commit(4)
	f.want("id: 4|")
}

func TestStreamResumes(t *testing.T) {
	for _, tt := range []struct {
		doc, last string
		head      uint64
		want      []string
	}{
		{"nothing missed", "3", 3, nil},
		{"two missed", "1", 3, []string{"id: 2|event: registry.update", "id: 3|event: registry.update"}},
		{"over a page", "1", 150, []string{"id: 2|"}},
		{"from the beginning", "0", 2, []string{"id: 1|", "id: 2|"}},
		{"exactly a thousand", "7", 1007, []string{"id: 8|"}},
		{"more than a thousand", "7", 1008, []string{`id: 1008|event: lagged|data: {"missed":1001,"from":8,"to":1008,"head":` + headJSON(1008) + "}"}},
		{"ahead of a restored node", "9", 3, []string{`id: 3|event: lagged|data: {"missed":0,`}},
	} {
		r := newRig(t).listening(t)
		r.reg.moveHead(tt.head)
		r.reg.since = func(after uint64, limit int) ([]document.Update, error) {
			var out []document.Update
			for v := after + 1; v <= tt.head && len(out) < limit; v++ {
				out = append(out, event(v))
			}
			return out, nil
		}
		f := r.stream(t, tt.last)
		f.want("retry: 3000", "event: hello")
		f.want(tt.want...)
		if tt.doc == "over a page" || tt.doc == "exactly a thousand" {
			for v := uint64(3); v <= tt.head; v++ {
				if tt.doc == "exactly a thousand" && v <= 8 {
					continue
				}
				f.want("id: " + formatUint(v) + "|")
			}
		}
		r.commit(tt.head + 1)
		f.want("id: " + formatUint(tt.head+1) + "|event: registry.update")
		f.close()
	}
}

func TestStreamRefusesAnIDThatIsNone(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"x", "01", "-1", "1.0", "99999999999999999999"} {
		if w := r.do(http.MethodHead, "/registry/stream", "",
			header{"Last-Event-ID": id}); w.Code != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %q: %d, want 400", id, w.Code)
		}
	}
}

func TestStreamEndsWhenReplayFails(t *testing.T) {
	r := newRig(t).listening(t)
	r.reg.since = func(uint64, int) ([]document.Update, error) { return nil, errors.New("store is gone") }
	f := r.stream(t, "1")
	f.want("retry: 3000", hello3, "")
}

// If the cursor of a client is overrun, the client gets one lagged event with the number of missed
// events, and continues from HEAD.
func TestStreamTellsLag(t *testing.T) {
	r := newRig(t)
	sub := r.reg.bus.Subscribe("sse")
	defer sub.Close()
	for v := uint64(4); v <= 23; v++ {
		r.commit(v)
	}
	rec := &recorder{header: http.Header{}}
	st := r.feed(t, rec, sub, 3)
	for !drained(st) {
		if err := st.Next(); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.Join(strings.Split(rec.body.String()+string(*st.Out()), "\n"), "|")
	if got != `id: 23|event: lagged|data: {"missed":20,"from":4,"to":23,"head":`+headJSON(23)+"}||" {
		t.Errorf("told %s", got)
	}
	r.commit(24)
	if err := st.Next(); err != nil || !strings.HasPrefix(string(*st.Out()), "id: 24\n") {
		t.Errorf("then %v %s, want version 24", err, *st.Out())
	}
}

// A gap that the bus does not know of, since the event's producer has left it, is told as a lag
// too.
func TestStreamTellsOfAGap(t *testing.T) {
	r := newRig(t)
	sub := r.reg.bus.Subscribe("sse")
	defer sub.Close()
	st := r.feed(t, &recorder{header: http.Header{}}, sub, 3)
	r.commit(6)
	if err := st.Next(); err != nil {
		t.Fatal(err)
	}
	r.commit(7)
	rec := &recorder{header: http.Header{}}
	gap := r.feed(t, rec, sub, 5)
	if err := gap.Next(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Split(rec.body.String()+string(*gap.Out()), "\n"), "|")
	if got != `id: 7|event: lagged|data: {"missed":2,"from":6,"to":7,"head":`+headJSON(7)+"}||" {
		t.Errorf("told %s", got)
	}
}

// A registry with a silent publisher opens no stream.
func TestStreamOfASilentRegistry(t *testing.T) {
	r := newRig(t)
	r.reg.emits = &document.NotReadyError{Cause: document.CauseUpdatesOff}
	w := r.do(http.MethodGet, "/registry/stream", "", nil)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), document.CauseUpdatesOff) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// feed is a stream to rec that has told all up to sent.
func (r *rig) feed(
	t *testing.T,
	rec *recorder,
	sub *flow.Subscription[document.Update],
	sent uint64,
) httpapi.Feed[document.Update] {
	c := r.NewRequest(rec, newRequest(t), &httpapi.Route{Service: serviceRegistry, Class: httpapi.ClassStream},
		&front.Peer{})
	return httpapi.NewFeed(c, registryapi.Stream(r.reg), sub, sent)
}

func drained(st httpapi.Feed[document.Update]) bool { return !st.Pending() }

func newRequest(t *testing.T) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/registry/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// recorder is a connection that takes everything, deadlines too.
type recorder struct {
	header http.Header
	body   strings.Builder
}

func (r *recorder) Header() http.Header              { return r.header }
func (r *recorder) WriteHeader(int)                  {}
func (r *recorder) Write(b []byte) (int, error)      { return r.body.Write(b) }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) FlushError() error                { return nil }

func TestStreamPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) {
			l := someStreams()
			l.Ping = 15 * time.Second
			setStreams(c, l)
		})
		rec := &recorder{header: http.Header{}}
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		r.Router().ServeHTTP(rec, newRequest(t).WithContext(ctx))
		if got := strings.Count(rec.body.String(), ": ping\n\n"); got != 3 {
			t.Errorf("%d pings in 46 s, want 3", got)
		}
	})
}

func TestStreamEndsWithTheNode(t *testing.T) {
	for _, tt := range []struct {
		doc string
		end func(*rig)
	}{
		{"gate closed", func(r *rig) { r.SetGate(httpapi.GateClosed) }},
		{"stopping", func(r *rig) { r.phase.Store(flow.Stopping) }},
		{"poisoned", func(r *rig) { r.phase.Store(flow.Poisoned) }},
		{"bus closed", func(r *rig) { r.reg.bus.Close() }},
	} {
		r := newRig(t).listening(t)
		f := r.stream(t, "")
		f.want("retry: 3000", hello3)
		r.phase.Store(flow.Draining)
		r.SetGate(httpapi.GateDraining)
		r.commit(4)
		f.want("id: 4|") // a commit during the drain is still told
		tt.end(r)
		f.want("event: shutdown|data: {}", "")
		if got := r.OpenStreams(serviceRegistry).Count(); got != 0 {
			waitFor(t, "stream to leave", func() bool { return r.OpenStreams(serviceRegistry).Count() == 0 })
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Errorf("%s: Shutdown: %v", tt.doc, err)
		}
	}
}

func TestStreamsAreCapped(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		l := someStreams()
		l.Max, l.PerNetwork = 3, 2
		setStreams(c, l)
	}).listening(t)
	first, second := r.stream(t, ""), r.stream(t, "")
	first.want("retry: 3000", hello3)
	second.want("retry: 3000", hello3)
	third := r.stream(t, "")
	if third.resp.StatusCode != http.StatusTooManyRequests || third.resp.Header.Get("Retry-After") == "" {
		t.Errorf("third of one address: %d, want 429", third.resp.StatusCode)
	}
	if got := sum(t, r.metrics, "registry_sse_clients"); got != 2 {
		t.Errorf("registry_sse_clients = %v, want 2", got)
	}
	overSocket := &front.Peer{Socket: true}
	if !r.OpenStreams(serviceRegistry).Acquire(overSocket, r.LimitsOf(serviceRegistry).Streams) ||
		r.OpenStreams(serviceRegistry).Acquire(overSocket, r.LimitsOf(serviceRegistry).Streams) {
		t.Error("a socket peer takes the last place, and no one the one after")
	}
	r.OpenStreams(serviceRegistry).Release(overSocket)
	first.close()
	waitFor(t, "place to come free", func() bool { return r.OpenStreams(serviceRegistry).Count() == 1 })
	if r.OpenStreams(serviceRegistry).Networks() != 1 {
		t.Errorf("addresses %v, want the one with a stream", r.OpenStreams(serviceRegistry).Networks())
	}
	r.stream(t, "").want("retry: 3000", hello3)
}

func TestStreamHeadAnswersAndEnds(t *testing.T) {
	w := newRig(t).do(http.MethodHead, "/registry/stream", "", nil)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() != 0 {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
}
