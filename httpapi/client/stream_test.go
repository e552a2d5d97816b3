package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

// script is a server that sends the n-th body on the n-th connection. It records the requested ids.
type script struct {
	bodies []string
	asked  []string
}

func (s *script) serve(rw http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Header.Get("Last-Event-ID"))
	n := len(s.asked) - 1
	if n >= len(s.bodies) {
		problem(rw, http.StatusNotFound, `{"reason":"not_found"}`)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(rw, "retry: 1\n\n"+s.bodies[n])
}

func update(v int) string {
	return fmt.Sprintf("id: %d\nevent: registry.update\ndata: {\"version\":%d}\n\n", v, v)
}

const hello = "event: hello\ndata: {\"incarnation\":\"i\",\"head\":{\"version\":1}}\n\n"

func TestStreamResumesAfterTheLastEvent(t *testing.T) {
	s := &script{bodies: []string{hello + update(2) + update(3), hello + update(3) + update(4), hello + update(5)}}
	c := serve(t, s.serve, client.Options{})
	var got []string
	breaks := 0
	err := c.Stream(
		t.Context(),
		client.StreamOptions{LastEventID: "1", Reconnect: func(error, time.Duration) { breaks++ }},
		func(e client.Event) error {
			if e.Name == registryapi.EventUpdate {
				got = append(got, e.ID)
			}
			return nil
		},
	)
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "not_found" {
		t.Errorf("err = %v, want the refusal of the fourth connection", err)
	}
	if want := []string{"2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	if want := []string{"1", "3", "4", "5"}; !slices.Equal(s.asked, want) || breaks != 3 {
		t.Errorf("Last-Event-ID %v after %d breaks, want %v", s.asked, breaks, want)
	}
}

func TestStreamThatBreaksAtOnceMissesNothing(t *testing.T) {
	s := &script{bodies: []string{hello, update(2)}}
	err := serve(t, s.serve,
		client.Options{}).Stream(t.Context(), client.StreamOptions{}, func(client.Event) error { return nil })
	if want := []string{"", "1", "2"}; err == nil || !slices.Equal(s.asked, want) {
		t.Errorf("resumed after %q, want %q: %v", s.asked, want, err)
	}
}

// The lagged event of a restored or new node moves the stream back. It has no id if the log is
// empty.
func TestStreamLeadsBack(t *testing.T) {
	const anew = "event: lagged\ndata: {\"missed\":0,\"from\":4,\"to\":0,\"head\":{\"version\":0}}\n\n"
	s := &script{bodies: []string{update(2) + update(3), hello + anew, update(1)}}
	var got []string
	err := serve(t, s.serve, client.Options{}).Stream(t.Context(), client.StreamOptions{}, func(e client.Event) error {
		if e.Name == registryapi.EventUpdate {
			got = append(got, e.ID)
		}
		return nil
	})
	if want := []string{"2", "3", "1"}; err == nil || !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v: %v", got, want, err)
	}
	if want := []string{"", "3", "0", "1"}; !slices.Equal(s.asked, want) {
		t.Errorf("resumed after %q, want %q", s.asked, want)
	}
}

// A node that says when it is worth to come back is not asked before.
func TestStreamWaitsAsTold(t *testing.T) {
	n := 0
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if n++; n == 2 {
			problem(rw, http.StatusTooManyRequests, `{"reason":"rate_limit","retryable":true,"retry_after":7}`)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "retry: 1\n\n"+hello)
	}, client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	err := c.Stream(ctx, client.StreamOptions{Reconnect: func(_ error, d time.Duration) {
		if waits = append(waits, d); len(waits) == 2 {
			cancel()
		}
	}}, func(client.Event) error { return nil })
	if !errors.Is(err, context.Canceled) || len(waits) != 2 || waits[0] >= time.Second || waits[1] < 7*time.Second ||
		waits[1] > 8*time.Second {
		t.Errorf("waited %v: %v", waits, err)
	}
}

func TestStreamEnds(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		doc  string
		body string
		o    client.StreamOptions
		each func(client.Event) error
		want error
	}{
		{"when asked to", update(2), client.StreamOptions{}, func(client.Event) error { return client.ErrStop }, nil},
		{"with the caller's error", update(2), client.StreamOptions{}, func(client.Event) error { return boom }, boom},
		{"at a line out of bounds", "data: " + strings.Repeat("x", 5<<20), client.StreamOptions{}, func(client.Event) error { return nil }, client.ErrFrame},
		{"at data that is no JSON", "data: {\n\n", client.StreamOptions{}, func(client.Event) error { return nil }, client.ErrFrame},
		{"after a fruitless connection", "", client.StreamOptions{Tries: 1}, func(client.Event) error { return nil }, client.ErrUnknown},
	} {
		s := &script{bodies: []string{tt.body}}
		c := serve(t, s.serve, client.Options{})
		if err := c.Stream(t.Context(), tt.o, tt.each); !errors.Is(err, tt.want) || len(s.asked) != 1 {
			t.Errorf("%s: err = %v after %d connections, want %v", tt.doc, err, len(s.asked), tt.want)
		}
	}
}

func TestStreamToNobodyFailsAtOnce(t *testing.T) {
	c, err := client.New(client.Options{Socket: t.TempDir() + "/none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := registryapi.NewClient(c).
		Stream(t.Context(), client.StreamOptions{}, nil); !errors.Is(
		err,
		client.ErrNotReachable,
	) {
		t.Errorf("err = %v, want ErrNotReachable", err)
	}
}

// A server that stops to ping is left, and asked again.
func TestSilentStreamIsLeft(t *testing.T) {
	var conns atomic.Int64
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "retry: 1\n\n"+update(int(conns.Add(1))))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}, client.Options{})
	err := c.Stream(t.Context(), client.StreamOptions{Idle: 2 * time.Second}, func(e client.Event) error {
		if conns.Load() > 1 {
			return client.ErrStop
		}
		return nil
	})
	if n := conns.Load(); err != nil || n < 2 {
		t.Errorf("err = %v after %d connections, want another one", err, n)
	}
}

func TestCanceledStreamReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, update(1))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}, client.Options{})
	err := c.Stream(ctx, client.StreamOptions{}, func(client.Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}
