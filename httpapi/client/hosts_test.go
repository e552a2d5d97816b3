package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// members are nodes of a cluster as a client sees them: each answers as its handler says.
type members struct {
	t    *testing.T
	urls []string
	mu   sync.Mutex
	seen []int // which one got each request; guarded by mu
}

// meet starts a member per handler, and one that refuses connections for a nil handler.
func meet(t *testing.T, handlers ...http.HandlerFunc) *members {
	t.Helper()
	m := &members{t: t}
	for i, h := range handlers {
		if h == nil {
			m.urls = append(m.urls, "http://"+hosttest.FreeAddr(t))
			continue
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.mu.Lock()
			m.seen = append(m.seen, i)
			m.mu.Unlock()
			if r.Header.Get("Authorization") != "Bearer tok" {
				t.Errorf("member %d gets %v", i, r.Header)
			}
			h(w, r)
		}))
		t.Cleanup(srv.Close)
		m.urls = append(m.urls, srv.URL)
	}
	return m
}

// ask sends a POST and returns which members got a request.
func (m *members) ask(c *client.Client) ([]int, error) {
	m.t.Helper()
	m.mu.Lock()
	m.seen = nil
	m.mu.Unlock()
	_, err := c.Do(m.t.Context(), client.Call{Method: http.MethodPost, Path: "/v1/transfer", Body: struct{}{}})
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen), err
}

func (m *members) client(urls ...string) *client.Client {
	m.t.Helper()
	c, err := client.New(client.Options{URLs: urls, Token: "tok"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(c.Close)
	return c
}

func answers(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }

// refuses refuses as a node that does not lead, and names the leader unless it is "".
func refuses(leader *string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if *leader != "" {
			w.Header().Set(wire.LeaderHeader, *leader)
		}
		problem(w, 503, `{"reason":"not_leader","retryable":true,"details":{"outcome":"none"}}`)
	}
}

// forwards answers as a node that has forwarded the request to the leader.
func forwards(leader *string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.LeaderHeader, *leader)
		answers(w, r)
	}
}

// breaks takes the request and does not answer: it may have been carried out.
func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A request that was not carried out goes to the next URL, once to each. What may have been carried
// out is not repeated, but the next request goes elsewhere.
func TestSeveralURLs(t *testing.T) {
	none := ""
	refusal := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { problem(w, status, body) }
	}
	for _, tt := range []struct {
		doc         string
		nodes       []http.HandlerFunc
		first, then []int
		want        error
		reason      string
	}{
		{"all is well", []http.HandlerFunc{answers, answers}, []int{0}, []int{0}, nil, ""},
		{"the first is dead", []http.HandlerFunc{nil, answers}, []int{1}, []int{1}, nil, ""},
		{"the first does not lead", []http.HandlerFunc{refuses(&none), answers}, []int{0, 1}, []int{1}, nil, ""},
		{"only the last leads", []http.HandlerFunc{nil, refuses(&none), answers}, []int{1, 2}, []int{2}, nil, ""},
		{"none leads", []http.HandlerFunc{refuses(&none), refuses(&none)}, []int{0, 1}, []int{0, 1}, nil, "not_leader"},
		{"all are dead", []http.HandlerFunc{nil, nil}, nil, nil, client.ErrNotReachable, ""},
		{"the answer is lost", []http.HandlerFunc{breaks, answers}, []int{0}, []int{1}, client.ErrUnknown, ""},
		{
			"the outcome is unknown",
			[]http.HandlerFunc{refusal(503, `{"reason":"not_leader","details":{"outcome":"unknown"}}`), answers},
			[]int{0}, []int{0}, nil, "not_leader",
		},
		{
			"refused for good", []http.HandlerFunc{refusal(402, `{"reason":"insufficient"}`), answers},
			[]int{0}, []int{0}, nil, "insufficient",
		},
	} {
		m := meet(t, tt.nodes...)
		c := m.client(m.urls...)
		seen, err := m.ask(c)
		var p *wire.Problem
		if errors.As(err, &p) != (tt.reason != "") || p != nil && p.Reason != tt.reason ||
			tt.reason == "" && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if !slices.Equal(seen, tt.first) {
			t.Errorf("%s: asked %v, want %v", tt.doc, seen, tt.first)
		}
		if seen, _ = m.ask(c); !slices.Equal(seen, tt.then) {
			t.Errorf("%s: asked %v then, want %v", tt.doc, seen, tt.then)
		}
	}
}

// A client follows the leader that a member names, if its URL is listed: the token goes nowhere
// else.
func TestLeaderIsFollowed(t *testing.T) {
	var leader string
	m := meet(t, forwards(&leader), refuses(&leader), answers, nil)
	listed := m.urls[:3]
	c := m.client(listed...)
	leader = listed[2] + "/"
	if seen, err := m.ask(c); err != nil || !slices.Equal(seen, []int{0}) {
		t.Errorf("forwarded: asked %v, %v", seen, err)
	}
	if seen, err := m.ask(c); err != nil || !slices.Equal(seen, []int{2}) {
		t.Errorf("the leader is listed: asked %v, %v", seen, err)
	}
	c = m.client(listed[1], listed[0], listed[2])
	if seen, err := m.ask(c); err != nil || !slices.Equal(seen, []int{1, 2}) {
		t.Errorf("not_leader: asked %v, %v", seen, err)
	}
	for _, unlisted := range []string{m.urls[2], "http://user@" + strings.TrimPrefix(m.urls[0], "http://"), "%"} {
		leader = unlisted
		c = m.client(m.urls[1], m.urls[0])
		for _, want := range [][]int{{1, 0}, {0}, {0}} {
			if seen, err := m.ask(c); err != nil || !slices.Equal(seen, want) {
				t.Errorf("%s is not listed: asked %v, want %v: %v", leader, seen, want, err)
			}
		}
	}
	leader = m.urls[3] // named, listed, and not reached from here
	c = m.client(m.urls[0], m.urls[3])
	for range 3 {
		if seen, err := m.ask(c); err != nil || !slices.Equal(seen, []int{0}) {
			t.Errorf("a leader that is not reached: asked %v, %v", seen, err)
		}
	}
}

// A body that is a stream is read once, so its request is not repeated.
func TestStreamIsSentOnce(t *testing.T) {
	none := ""
	m := meet(t, refuses(&none), answers)
	c := m.client(m.urls...)
	body := "content"
	_, err := c.Do(t.Context(), client.Call{
		Method: http.MethodPost, Path: "/", Stream: strings.NewReader(body), Length: int64(len(body)),
	})
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "not_leader" || !slices.Equal(m.seen, []int{0}) {
		t.Errorf("asked %v: %v", m.seen, err)
	}
}

// An event stream begins at another member if the first is not there.
func TestFollowElsewhere(t *testing.T) {
	m := meet(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: x\nid: 1\ndata: {}\n\n")
	})
	err := m.client(m.urls...).Follow(t.Context(), client.Feed{Path: "/s", Numbered: "x"}, client.StreamOptions{},
		func(client.Event) error { return client.ErrStop })
	if err != nil || !slices.Equal(m.seen, []int{1}) {
		t.Errorf("asked %v: %v", m.seen, err)
	}
}

func TestSplitURLs(t *testing.T) {
	got := client.SplitURLs(" http://a:1 ,https://b:2/")
	if !slices.Equal(got, []string{"http://a:1", "https://b:2/"}) {
		t.Errorf("%q", got)
	}
	for _, urls := range [][]string{
		nil,
		client.SplitURLs(""),
		client.SplitURLs("http://a:1,"),
		{"http://a:1", "ftp://b"},
		{"http://user@a:1"},
	} {
		if _, err := client.New(client.Options{URLs: urls}); err == nil {
			t.Errorf("%q is accepted", urls)
		}
	}
	c, err := client.New(client.Options{URL: "http://a:1", URLs: got[1:]})
	if err != nil || c.Where() != "http://a:1, https://b:2" {
		t.Errorf("%v, %v", c, err)
	}
}
