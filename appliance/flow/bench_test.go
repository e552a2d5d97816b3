package flow

import (
	"context"
	"sync/atomic"
	"testing"
)

// job is a typical queue item of a few words.
type job struct {
	ctx   context.Context
	key   string
	reply *Reply[int]
}

func newJob() job {
	return job{ctx: context.Background(), key: "key", reply: NewReply[int]()}
}

func BenchmarkQueue(b *testing.B) {
	item := newJob()
	b.Run("channel", func(b *testing.B) {
		ch := make(chan job, 512)
		b.ReportAllocs()
		for b.Loop() {
			select {
			case ch <- item:
			default:
			}
			<-ch
		}
	})
	b.Run("queue", func(b *testing.B) {
		q := newQueue[job](512)
		b.ReportAllocs()
		for b.Loop() {
			_ = q.TrySend(item)
			<-q.C()
		}
	})
	b.Run("channel-busy", func(b *testing.B) {
		ch := make(chan job, 1)
		ch <- item
		b.ReportAllocs()
		for b.Loop() {
			select {
			case ch <- item:
			default:
			}
		}
	})
	b.Run("queue-busy", func(b *testing.B) {
		q := newQueue[job](1)
		_ = q.TrySend(item)
		b.ReportAllocs()
		for b.Loop() {
			_ = q.TrySend(item)
		}
	})
}

// Many senders, one receiver, as handlers feed a task.
func BenchmarkQueueParallel(b *testing.B) {
	item := newJob()
	b.Run("channel", func(b *testing.B) {
		ch := make(chan job, 512)
		benchParallel(b, func() bool {
			select {
			case ch <- item:
				return true
			default:
				return false
			}
		}, ch, func() { close(ch) })
	})
	b.Run("queue", func(b *testing.B) {
		q := newQueue[job](512)
		benchParallel(b, func() bool { return q.TrySend(item) == nil }, q.C(), q.Close)
	})
}

func benchParallel(b *testing.B, send func() bool, out <-chan job, end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range out {
		}
	}()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			send()
		}
	})
	end()
	<-done
}

func BenchmarkWatchLoad(b *testing.B) {
	b.Run("pointer", func(b *testing.B) {
		var p atomic.Pointer[pair]
		p.Store(&pair{1, 1, 1, 1})
		sum := 0
		b.ReportAllocs()
		for b.Loop() {
			sum += p.Load().a
		}
	})
	b.Run("watch", func(b *testing.B) {
		w := newWatch(&pair{1, 1, 1, 1})
		sum := 0
		b.ReportAllocs()
		for b.Loop() {
			v, _ := w.Load()
			sum += v.a
		}
	})
}

func BenchmarkBroadcastPublish(b *testing.B) {
	for name, readers := range map[string]int{"0 subscribers": 0, "4 stalled": 4} {
		b.Run(name, func(b *testing.B) {
			bus := newBus(1024)
			for range readers {
				bus.Subscribe("bench")
			}
			b.ReportAllocs()
			for b.Loop() {
				bus.Publish(1)
			}
		})
	}
	b.Run("1 reading", func(b *testing.B) {
		bus := newBus(1024)
		s := bus.Subscribe("bench")
		b.ReportAllocs()
		for b.Loop() {
			bus.Publish(1)
			s.Next()
		}
	})
}

// One job answered by another goroutine: NewReply, TrySend, Claim, Answer, Wait.
func BenchmarkReplyRoundTrip(b *testing.B) {
	b.Run("chan answer", func(b *testing.B) {
		work, done := make(chan chan int, 512), make(chan struct{})
		go func() {
			defer close(done)
			for c := range work {
				c <- 1
			}
		}()
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			c := make(chan int, 1)
			work <- c
			select {
			case <-c:
			case <-ctx.Done():
			}
		}
		close(work)
		<-done
	})
	b.Run("reply", func(b *testing.B) {
		q, done, ctx := newQueue[*Reply[int]](512), make(chan struct{}), b.Context()
		go func() {
			defer close(done)
			for r := range q.C() {
				if r.Claim() {
					r.Answer(1)
				}
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			r := NewReply[int]()
			_ = q.TrySend(r)
			_, _ = r.Wait(ctx)
		}
		q.Close()
		<-done
	})
}

// The hot paths allocate nothing.
func TestHotPathsDoNotAllocate(t *testing.T) {
	q, w, bus, item := newQueue[job](8), newWatch(1), newBus(8), newJob()
	s := bus.Subscribe("test")
	for name, f := range map[string]func(){
		"TrySend and receive": func() { _ = q.TrySend(item); <-q.items },
		"Load":                func() { w.Load() },
		"Publish and Next":    func() { bus.Publish(1); s.Next() },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
