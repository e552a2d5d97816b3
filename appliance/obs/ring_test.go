package obs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// pipe is a reader that can be stuck and can fail.
type pipe struct {
	mu    sync.Mutex
	got   bytes.Buffer
	stuck chan struct{} // nil, or closed to let go
	err   error
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.stuck != nil {
		<-p.stuck
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	return p.got.Write(b)
}

func (p *pipe) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got.String()
}

func put(t testing.TB, r *Ring, line string) {
	t.Helper()
	if n, err := r.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
		t.Errorf("Write(%q) = %d, %v", line, n, err)
	}
}

// Nothing is written before the writer starts. A node that ends before that flushes itself.
func TestRingGathersUntilRun(t *testing.T) {
	p := &pipe{}
	r := NewRing(p, nil)
	put(t, r, "one")
	if p.text() != "" || r.depth() != 1 {
		t.Errorf("%q, %v lines pending", p.text(), r.depth())
	}
	if err := r.Flush(t.Context()); err != nil || p.text() != "one\n" {
		t.Errorf("%q, %v", p.text(), err)
	}
	put(t, r, "two")
	if err := r.Flush(t.Context()); err != nil || p.text() != "one\ntwo\n" {
		t.Errorf("%q, %v", p.text(), err)
	}
}

// A pipe that is full from the start holds up neither those who log nor, beyond its time, the flush
// of a node that ends.
func TestRingWithFullPipe(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	full, err := unix.FcntlInt(out.Fd(), unix.F_SETPIPE_SZ, 4096) // Fd makes it block, as the standard streams do
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(bytes.Repeat([]byte("x"), full)); err != nil {
		t.Fatal(err)
	}
	m := NewMetrics()
	r := NewRing(out, m)
	put(t, r, "early")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush into a full pipe: %v", err)
	}
	if want := `queue_dropped_total{queue="log",service="node"} 1`; !strings.Contains(scrape(t, m), want) {
		t.Errorf("%s is missing", want)
	}
	if _, err := io.CopyN(io.Discard, in, int64(full)); err != nil {
		t.Fatal(err)
	}
	put(t, r, "late")
	if err := r.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "late\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A stuck reader stalls no one: what does not fit is dropped and counted, what fits comes out in
// order once it reads again.
func TestRingWithStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := &pipe{stuck: make(chan struct{})}, NewMetrics()
		r := NewRing(p, m)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		put(t, r, "first") // the writer takes it and is stuck
		synctest.Wait()
		long := strings.Repeat("x", 1023)
		for range RingCap()/1024 + 10 {
			put(t, r, long)
		}
		text := scrape(t, m)
		for _, want := range []string{`queue_dropped_total{queue="log",service="node"} 10`, fmt.Sprintf(`queue_depth{queue="log",service="node"} %d`, RingCap()/1024)} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("%s is missing", want)
			}
		}
		late, stop := context.WithTimeout(ctx, time.Second)
		if err := r.Flush(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush of a stuck ring: %v", err)
		}
		stop()
		close(p.stuck)
		if err := r.Flush(ctx); err != nil {
			t.Error(err)
		}
		if want := "first\n" + strings.Repeat(long+"\n", RingCap()/1024); p.text() != want {
			t.Errorf("%d bytes came out, want %d", len(p.text()), len(want))
		}
		cancel()
		<-done
		put(t, r, "after")
		if !strings.HasSuffix(p.text(), "\nafter\n") {
			t.Error("the ring does not write through after Run")
		}
	})
}

// Run returns only after all accepted lines are written, and can be called again.
func TestRingDrainsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{stuck: make(chan struct{})}
		r := NewRing(p, nil)
		for round := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			synctest.Wait()
			if err := r.Run(ctx); !errors.Is(err, errTwoWriters) {
				t.Errorf("a second writer: %v", err)
			}
			put(t, r, fmt.Sprint(round))
			synctest.Wait()
			put(t, r, "tail")
			cancel()
			synctest.Wait()
			if round == 0 {
				if len(done) != 0 {
					t.Error("Run ended with lines pending")
				}
				close(p.stuck)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if p.text() != "0\ntail\n1\ntail\n" {
			t.Errorf("%q", p.text())
		}
	})
}

func TestRingCountsWhatCannotBeWritten(t *testing.T) {
	p, m := &pipe{err: errors.New("broken pipe")}, NewMetrics()
	r := NewRing(p, m)
	put(t, r, "one")
	if err := r.Flush(t.Context()); err == nil {
		t.Error("a broken pipe goes unnoticed")
	}
	if text := scrape(t, m); !strings.Contains(text, `queue_dropped_total{queue="log",service="node"} 1`) {
		t.Error("not counted")
	}
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("gone") }

// After a panic of the reader in Run, the ring can be flushed and run again.
func TestRingSurvivesPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(panicking{}, nil)
		done := make(chan any, 1)
		go func() {
			defer func() { done <- recover() }()
			_ = r.Run(t.Context())
		}()
		synctest.Wait()
		put(t, r, "x")
		if got := <-done; got != "gone" {
			t.Errorf("recovered %v", got)
		}
		if err := r.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		r.out = &pipe{}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// While lines fit, each comes out once and whole, and those of one writer in order, however Run
// comes and goes.
func TestRingKeepsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rounds := rapid.IntRange(1, 3).Draw(rt, "rounds")
		perWriter := rapid.IntRange(1, 50).Draw(rt, "lines")
		p := &pipe{}
		r := NewRing(p, nil)
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				for i := range perWriter {
					put(t, r, fmt.Sprintf("%d %d", w, i))
				}
			})
		}
		for range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			if err := r.Flush(ctx); err != nil {
				rt.Fatal(err)
			}
			cancel()
			if err := <-done; err != nil {
				rt.Fatal(err)
			}
		}
		writers.Wait()
		var next [3]int
		for line := range strings.Lines(p.text()) {
			var w, i int
			if _, err := fmt.Sscanf(line, "%d %d\n", &w, &i); err != nil || next[w] != i {
				rt.Fatalf("line %q out of turn: %v", line, err)
			}
			next[w]++
		}
		if next != [3]int{perWriter, perWriter, perWriter} {
			rt.Fatalf("lines out: %v, want %d each", next, perWriter)
		}
	})
}
