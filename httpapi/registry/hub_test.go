package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

// hubOf returns a hub at a server with the handler.
func hubOf(t *testing.T, h http.HandlerFunc) *Hub {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return opened(t, srv.URL)
}

func opened(t *testing.T, url string) *Hub {
	t.Helper()
	m := obs.NewMetrics()
	hub := NewHub(flow.NewCatalog(m, nil), m, url, nil, nil)
	if err := hub.Open(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Close)
	return hub
}

// What a hub answers is what its caller can tell apart: bytes, a version that is missing or pruned,
// and a hub that did not answer.
func TestHubAnswers(t *testing.T) {
	var busy atomic.Int64
	hub := hubOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/registry/1/entry":
			if busy.Add(1) < 3 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = io.WriteString(w, "entry")
		case "/registry/2/entry":
			w.WriteHeader(http.StatusNotFound)
		case "/registry/3/entry":
			w.WriteHeader(http.StatusGone)
		case "/registry/4/entry":
			http.Redirect(w, r, "/registry/1/entry", http.StatusFound)
		case "/registry/5/entry":
			_, _ = w.Write(make([]byte, record.MaxEntry+1))
		case "/registry/5/payload":
			_, _ = w.Write(make([]byte, record.MaxPayload+1))
		case "/registry/6/entry":
			w.WriteHeader(http.StatusForbidden)
		case "/registry/horizon":
			_, _ = io.WriteString(w, `{"min_version":257,"statement":"note","kept":[1,9]}`)
		case "/registry/257":
			_, _ = io.WriteString(w, `{"version":257,"items":[{"id": "a"}]}`)
		case "/registry/258":
			_, _ = io.WriteString(w, `{"approvals":[`+strings.Repeat(`{},`, 9)+`{}],"items":[0`+
				strings.Repeat(`,0`, record.MaxItems)+`]}`)
		case "/registry/tile/0/000.p/5":
			_, _ = io.WriteString(w, "hashes")
		}
	})
	raw, err := hub.Entry(t.Context(), 1)
	if err != nil || string(raw) != "entry" || busy.Load() != 3 {
		t.Errorf("of a busy hub: %q, %v after %d tries", raw, err, busy.Load())
	}
	for v, want := range map[uint64]error{
		2: document.ErrNotFound, 3: document.ErrPruned, 4: upstream.ErrRedirect, 5: upstream.ErrTooLarge,
	} {
		if raw, err := hub.Entry(t.Context(), v); !errors.Is(err, want) || raw != nil {
			t.Errorf("%d: %d bytes, %v, want %v", v, len(raw), err, want)
		}
	}
	if raw, err := hub.Payload(t.Context(), 5); !errors.Is(err, upstream.ErrTooLarge) || raw != nil {
		t.Errorf("a payload beyond the limit: %d bytes, %v", len(raw), err)
	}
	if _, err := hub.Entry(t.Context(), 6); upstream.StatusOf(err) != http.StatusForbidden {
		t.Errorf("refused: %v", err)
	}
	at, err := hub.Horizon(t.Context())
	if err != nil || at.MinVersion != 257 || at.Statement != "note" || !slices.Equal(at.Kept, []uint64{1, 9}) {
		t.Errorf("horizon %+v, %v", at, err)
	}
	if items, err := hub.Items(t.Context(), 257); err != nil || len(items) != 1 || string(items[0]) != `{"id": "a"}` {
		t.Errorf("items %s, %v", items, err)
	}
	if items, err := hub.Items(t.Context(), 258); !errors.Is(err, record.ErrHardLimit) || items != nil {
		t.Errorf("%d items, %v", len(items), err)
	}
	if raw, err := hub.Tile(t.Context(), "0/000.p/5"); err != nil || string(raw) != "hashes" {
		t.Errorf("tile %q, %v", raw, err)
	}
}

// A follower hears of the versions in the frames of the stream, from the one that it has on.
func TestHubIsHeard(t *testing.T) {
	hub := hubOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/registry/stream" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: hello\ndata: {\"head\":{\"version\":7}}\n\n: ping\n\n"+
			"event: %s\nid: 8\ndata: {}\n\nevent: lagged\ndata: {\"head\":{\"version\":12}}\n\n"+
			"event: other\ndata: {}\n\nevent: %[1]s\nid: x\ndata: {}\n\ndata: last %s\n\n", registryapi.EventUpdate,
			r.Header.Get("Last-Event-ID"))
	})
	var heard []uint64
	err := hub.Hear(t.Context(), 6, func(v uint64) { heard = append(heard, v) })
	if err == nil || !slices.Equal(heard, []uint64{7, 8, 12}) {
		t.Errorf("heard %v, %v", heard, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hub.Hear(ctx, 0, func(uint64) {}); err == nil {
		t.Error("a stream without an end")
	}
}

// A hub at a private address is called only if the configuration permits the network, or without
// TLS on this host.
func TestHubAddresses(t *testing.T) {
	_, err := opened(t, "https://127.0.0.1:1").Checkpoint(t.Context())
	if !errors.Is(err, upstream.ErrAddress) {
		t.Errorf("https to this host: %v", err)
	}
	m := obs.NewMetrics()
	hub := NewHub(flow.NewCatalog(m, nil), m, "http://hub.example", nil, nil)
	if err := hub.Open(nil); !errors.Is(err, upstream.ErrURL) || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("http to another host: %v", err)
	}
}
