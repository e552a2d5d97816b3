package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sample values.
const (
	someB3   = "b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	somePeer = "12D3KooWM8sovaEGU1bmiWGWAzvs47DEcXKZZTuJnpQyVTkRs2Vn"
	someAddr = "/ip4/192.0.2.1/tcp/443/https"
)

var someCID = b3.Sum([]byte("content"))

// newPeer returns a peer that asks a server with handler h.
func newPeer(t *testing.T, h http.HandlerFunc) *Peer {
	t.Helper()
	s := httptest.NewServer(h)
	m := obs.NewMetrics()
	p, err := NewPeer(flow.NewCatalog(m, nil), m, s.URL+"#eu-west-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); s.CloseClientConnections(); s.Close() })
	return p
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", httpapi.TypeJSON)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestPeerReadsRecords(t *testing.T) {
	record := []byte("signed bytes")
	raw, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	var path, budget string
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request) {
		path, budget = r.URL.Path, r.Header.Get(hopHeader)
		answer(http.StatusOK, `{"Providers":[
			{"Schema":"peer","ID":"`+somePeer+`","Addrs":["`+someAddr+`"],"Protocols":["x"],"ron":`+string(raw)+`,"else":{}},
			{"Schema":"bitswap","ID":"`+somePeer+`","Protocol":"transport-bitswap","Addrs":[]},
			{"Schema":"peer","ID":"no id"},{"Schema":"another","ID":"`+somePeer+`"},{}],"More":1}`)(w, r)
	})
	got, err := p.Providers(t.Context(), someCID, 10)
	if err != nil || len(got) != 2 || got[0].Peer != somePeer || !bytes.Equal(got[0].Record, record) ||
		got[0].Addrs[0] != someAddr ||
		got[1].Record != nil {
		t.Errorf("providers = %+v, %v", got, err)
	}
	if path != "/routing/v1/providers/"+name.CIDText(someCID) || budget != "0" {
		t.Errorf("asked %q with a budget of %q", path, budget)
	}
	if got, err = p.Providers(t.Context(), someCID, 1); err != nil || len(got) != 1 {
		t.Errorf("of at most 1: %+v, %v", got, err)
	}
}

// Every answer of a peer is mapped to an error that the engine knows, and ends only its own call.
func TestHostilePeers(t *testing.T) {
	var followed atomic.Bool
	for _, tt := range []struct {
		doc  string
		h    http.HandlerFunc
		want error
	}{
		{"nothing known", answer(http.StatusNotFound, `{}`), nil},
		{"an empty list", answer(http.StatusOK, `{"Providers":null}`), nil},
		{"busy", answer(http.StatusTooManyRequests, ``), name.ErrTransient},
		{"broken", answer(http.StatusInternalServerError, ``), name.ErrTransient},
		{"gone for now", answer(http.StatusServiceUnavailable, ``), name.ErrTransient},
		{"not built", answer(http.StatusNotImplemented, ``), name.ErrNoRoute},
		{"refused", answer(http.StatusForbidden, ``), name.ErrInvalid},
		{"a page", answer(http.StatusOK, `<html>hello</html>`), name.ErrInvalid},
		{"half a document", answer(http.StatusOK, `{"Providers":[{"Schema":"peer"`), name.ErrInvalid},
		{"wrong types", answer(http.StatusOK, `{"Providers":[{"Schema":7}]}`), name.ErrInvalid},
		{"a member twice", answer(http.StatusOK, `{"Providers":[],"Providers":[]}`), name.ErrInvalid},
		{"nested without end", answer(http.StatusOK, `{"Providers":`+strings.Repeat("[", 1<<19)), name.ErrInvalid},
		{"bytes of gzip", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			answer(http.StatusOK, "\x1f\x8b\x08\x00")(w, r)
		}, name.ErrInvalid},
		{"redirects", func(w http.ResponseWriter, r *http.Request) {
			followed.Store(r.URL.Path == "/elsewhere")
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, name.ErrInvalid},
		{"says it sends 1 GiB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			_, _ = w.Write(make([]byte, 1<<10))
		}, name.ErrInvalid},
		{"sends 1 GiB", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"Providers":[`)
			for range 1 << 14 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
					return
				}
			}
		}, name.ErrInvalid},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, name.ErrTransient},
		{"hangs up in the middle", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"Providers":[`)
		}, name.ErrTransient},
		{"a header without end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		}, name.ErrTransient},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			p := newPeer(t, tt.h)
			got, err := p.Providers(t.Context(), someCID, 10)
			if !errors.Is(err, tt.want) || len(got) != 0 {
				t.Errorf("providers = %+v, %v; want %v", got, err, tt.want)
			}
			if _, err := p.Name(t.Context(), someKey(t)); err == nil {
				t.Error("it has no name to give")
			}
		})
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

func someKey(t *testing.T) name.Key {
	t.Helper()
	k, err := name.ParseKey("name:docs.example")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The call of a peer that drips bytes or is silent ends with the lookup.
func TestDrippingPeerIsLeft(t *testing.T) {
	for _, first := range []string{"", `{"Providers":[`} {
		begun := make(chan struct{})
		p := newPeer(t, func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			for first != "" {
				if _, err := io.WriteString(w, first); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Millisecond):
				case <-r.Context().Done():
					return
				}
			}
			<-r.Context().Done()
		})
		cause := errors.New("beaten")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-begun; cancel(cause) }()
		if _, err := p.Providers(ctx, someCID, 10); !errors.Is(err, cause) {
			t.Errorf("err = %v, want the cause of the context", err)
		}
	}
}

func TestPeerThatIsNotThere(t *testing.T) {
	system := net.DefaultResolver // the system's resolver may be slow or resolve any name
	defer func() { net.DefaultResolver = system }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no name server")
	}}
	m := obs.NewMetrics()
	for entry, want := range map[string]error{"http://127.0.0.1:1": name.ErrTransient, "https://no-such-host.invalid": name.ErrNoRoute} {
		p, err := NewPeer(flow.NewCatalog(m, nil), m, entry)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Providers(t.Context(), someCID, 1); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", entry, err, want)
		}
		p.Close()
	}
	for _, entry := range []string{"http://192.0.2.1:80", "ftp://127.0.0.1", "https://u@a.example", "https://", "https://a.example#EU"} {
		if _, err := NewPeer(flow.NewCatalog(m, nil), m, entry); err == nil {
			t.Errorf("%s is taken", entry)
		}
	}
}
