package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// lapsing lets in every token until it has lapsed. A check of an open stream says that it is one.
type lapsing struct {
	mu      sync.Mutex
	until   time.Time
	checks  int
	streams int // checks of open streams
}

func (l *lapsing) Check(_ string, r auth.Request) (engines.Actor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks++
	if r.Again {
		l.streams++
	}
	if time.Now().After(l.until) {
		return engines.Actor{}, &auth.InvalidError{Stage: "expired", Reason: "expired"}
	}
	return engines.Actor{CapID: "tid", Principal: "alice", Scopes: append(allScopes(), r.Scope)}, nil
}

// Every stream that needs a permission ends within 5 s after its client has lost it, whether it is
// silent or busy, and however long it is between two pings. Those of lines say why.
func TestStreamsEndWithTheirTokens(t *testing.T) {
	var targets []string
	for _, route := range newRig(t).Table() {
		if route.Class == httpapi.ClassStream && (route.Scope != "" || len(route.AnyOf) > 0) {
			targets = append(targets, route.Pattern)
		}
	}
	if len(targets) < 3 {
		t.Fatalf("streams: %v", targets)
	}
	for _, target := range targets {
		for doc, every := range map[string]time.Duration{"silent": time.Hour, "busy": 300 * time.Millisecond} {
			t.Run(target+" "+doc, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { lapse(t, target, every) })
			})
		}
	}
}

func lapse(t *testing.T, target string, every time.Duration) {
	const life = 12 * time.Second
	token := &lapsing{until: time.Now().Add(life)}
	r := newRig(t, func(c *httpapi.Settings, d *deps) {
		d.Auth = token
		c.Server.AdminOnTCP = true
		l := someStreams()
		l.Ping = time.Hour
		setStreams(c, l)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.wal.commit()
			}
		}
	}()
	query := ""
	if strings.HasSuffix(target, "export") {
		query = "?follow=1"
	}
	req, _ := http.NewRequestWithContext(front.WithPeer(ctx, &front.Peer{}), http.MethodGet, target+query, nil)
	req.Header.Set("Authorization", "Bearer good")
	rec, begun := &recorder{header: http.Header{}}, time.Now()
	r.Router().ServeHTTP(rec, req)
	took := time.Since(begun)
	if took < life || took > life+5*time.Second+every%time.Minute {
		t.Errorf("it ended after %v", took)
	}
	if token.checks != token.streams+1 || token.streams == 0 || token.streams > 4 {
		t.Errorf("%d checks, %d of them of the stream", token.checks, token.streams)
	}
	if lines := rec.header.Get("Content-Type") == httpapi.TypeLines; lines !=
		strings.Contains(rec.body.String(), `{"problem":`) {
		t.Errorf("the end: %q", rec.body.String())
	}
}

// A stream of a peer of the socket ends after a reload that takes its permission.
func TestStreamsEndWithTheUIDMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(7*time.Second, func() {
			cfg := testSettings()
			cfg.UDS.Map = nil
			swap, _, err := r.Prepare(ctx, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			swap()
		})
		req, _ := http.NewRequestWithContext(front.WithPeer(ctx, socketPeer()), http.MethodGet, "/v1/events", nil)
		begun := time.Now()
		r.Router().ServeHTTP(&recorder{header: http.Header{}}, req)
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}
