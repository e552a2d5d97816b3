package near_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
)

// quick shortens the wait of requests, so that a bad node is left soon.
func quick(r *edgetest.Rig) { r.Cfg.Ingress.TimeoutSecs = 2 }

// A node that never ends its body, or sends it too slowly, is left in time for the next one. It is
// soon asked no more.
func TestFetchFromSlowNode(t *testing.T) {
	t.Parallel()
	for doc, answer := range map[string]func(w http.ResponseWriter, q *http.Request){
		"silent after the header": func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
		},
		"silent before it": func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		},
		"drips": func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			for q.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-q.Context().Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		},
	} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			body := edgetest.Loud("body", 1000)
			slow, good := edgetest.NewStation(t, "a", body), edgetest.NewStation(t, "b", body)
			slow.Answer = answer
			// long enough for a busy machine: the good node has a part of it alone
			r := edgetest.New(t, func(r *edgetest.Rig) { r.Cfg.Ingress.TimeoutSecs = 8 })
			r.SetFleet(edgetest.View(1, slow, good))
			if got, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{Owner: slow.ID}); got != body || err != nil {
				t.Errorf("%.10q, %v", got, err)
			}
			if r.Near.Fails(good.ID) {
				t.Error("the good node is blamed")
			}
			for i := 0; !r.Near.Fails(slow.ID); i++ {
				if i == 10 {
					t.Fatal("the slow node is asked for ever")
				}
				_, _ = r.Fetch(b3.Sum(fmt.Append(nil, i)), near.Hint{Owner: slow.ID})
			}
			edgetest.Until(t, "the fills have ended", func() bool { return r.Fills.Load().Running == 0 })
			r.Sound()
		})
	}
}

// A partial of one node is completed by another.
func TestFetchResumesAtAnotherNode(t *testing.T) {
	t.Parallel()
	body := edgetest.Loud("body", 200_000)
	first, second := edgetest.NewStation(t, "a", body), edgetest.NewStation(t, "b", body)
	first.Answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"`+b3.Sum([]byte(body)).String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write([]byte(body[:150_000]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	var asked string
	second.Answer = func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet {
			asked = q.Header.Get("Range")
		}
		second.Serve(w, q)
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, first, second))
	if got, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{Owner: first.ID}); got != body || err != nil {
		t.Fatalf("%.10q, %v", got, err)
	}
	if asked == "" || r.Near.Fails(second.ID) {
		t.Errorf("the second node was asked for %q", asked)
	}
	r.Sound()
}

// A liar that claims a long body displaces nothing before it has sent it.
func TestFetchReservesAsBytesArrive(t *testing.T) {
	t.Parallel()
	liar := edgetest.NewStation(t, "a")
	liar.Answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Content-Length", fmt.Sprint(64<<20))
		w.WriteHeader(http.StatusOK)
		if q.Method == http.MethodGet {
			_, _ = w.Write([]byte("a few bytes"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	r := edgetest.New(t, quick, func(r *edgetest.Rig) {
		r.Cfg.CAS.MaxBytes, r.Cfg.Fill.MaxObjectBytes = 64<<20, 64<<20
	})
	d := r.Store(edgetest.Loud("kept", 2<<20))
	r.SetFleet(edgetest.View(1, liar))
	if err := r.Near.Fetch(t.Context(), b3.Sum([]byte("x")), near.Hint{Owner: liar.ID}); err == nil {
		t.Fatal("a lie is believed")
	}
	if has, err := r.Content.Has(t.Context(), d); !has || err != nil {
		t.Errorf("the claim of a liar has displaced an object: %v", err)
	}
	r.Sound()
}

// Objects that displace each other are fetched again and again, at most as often as
// edge.ingress.rps_limit allows, and the content store stays sound.
func TestEvictAndFetchAgain(t *testing.T) {
	t.Parallel()
	bodies := []string{edgetest.Loud("one", 600_000), edgetest.Loud("two", 600_000)}
	a := edgetest.NewStation(t, "a", bodies...)
	r := edgetest.New(t, func(r *edgetest.Rig) {
		r.Cfg.CAS.MaxBytes, r.Cfg.Fill.MaxObjectBytes = 1_000_000, 1_000_000
		r.Cfg.Ingress.RPSLimit = 1
	})
	r.SetFleet(edgetest.View(1, a))
	refused := 0
	for i := range 30 {
		body := bodies[i%2]
		_, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{Owner: a.ID, Most: int64(len(body))})
		if rate, ok := errors.AsType[*asset.RateError](err); ok {
			refused++
			r.Pass(rate.Wait / 2)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n := int(a.Asked.Load()); refused == 0 || n == 0 || n+refused > 30 {
		t.Errorf("%d fetches, %d refused", n, refused)
	}
	r.Sound()
}

// A caller that leaves does not end the fetch for others, and a shutdown ends it for all.
func TestFetchAndShutdown(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	begun := make(chan struct{})
	var once sync.Once
	a.Answer = func(_ http.ResponseWriter, q *http.Request) {
		once.Do(func() { close(begun) })
		<-q.Context().Done()
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	fetch := func(ctx context.Context) { done <- r.Near.Fetch(ctx, b3.Sum([]byte("x")), near.Hint{Owner: a.ID}) }
	go fetch(ctx)
	<-begun
	go fetch(t.Context())
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: %v", err)
	}
	r.Drain(100 * time.Millisecond)
	if err := <-done; err == nil {
		t.Error("an aborted fetch has succeeded")
	}
}

// A node that sends a large object steadily, but not in time, is not blamed: the next requests go
// on where the last one ended.
func TestFetchLargeObjectInParts(t *testing.T) {
	t.Parallel()
	body := edgetest.Loud("large", 3<<20)
	a := edgetest.NewStation(t, "a", body)
	a.Answer = func(w http.ResponseWriter, q *http.Request) {
		a.Serve(&slowWriter{w, q.Context()}, q)
	}
	r := edgetest.New(t, quick)
	r.SetFleet(edgetest.View(1, a))
	var err error
	for range 40 {
		if err = r.Near.Fetch(t.Context(), b3.Sum([]byte(body)), near.Hint{Owner: a.ID, Most: 3 << 20}); err == nil {
			break
		}
		r.Pass(time.Minute) // so that the failure is forgotten
	}
	if err != nil || a.Asked.Load() < 2 || r.Near.Fails(a.ID) {
		t.Errorf("%v after %d requests", err, a.Asked.Load())
	}
	r.Sound()
}

// slowWriter writes about a megabyte a second.
type slowWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *slowWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var m int
		m, err = w.ResponseWriter.Write(b[:min(len(b), 32<<10)])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		n += m
		b = b[m:]
		select {
		case <-w.ctx.Done():
			return n, w.ctx.Err()
		case <-time.After(30 * time.Millisecond):
		}
	}
	return n, err
}
