package flow

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

func newBus(capacity int) *Broadcast[int] {
	return NewBroadcast[int](NewCatalog(nil, nil), Spec{Service: "t", Name: "events_tx", Cap: capacity})
}

// subModel is the expected state of a subscription: the values published since it began, and the
// numbers read and lost.
type subModel struct {
	sub                     *Subscription[int]
	from, delivered, lagged int
	told                    int
}

// In any sequence of calls every subscription gets the values since it began, in order, without
// those that fell out of the ring, and published = delivered + lagged + pending.
func TestBroadcastAccountsForEveryValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 5).Draw(t, "cap")
		b, n, subs := newBus(capacity), 0, []*subModel(nil)
		t.Repeat(map[string]func(*rapid.T){
			"Publish": func(*rapid.T) {
				b.Publish(n)
				n++
				for _, s := range subs {
					if n-s.from-s.delivered-s.lagged > capacity {
						s.lagged++
					}
				}
			},
			"Subscribe": func(*rapid.T) {
				subs = append(subs, &subModel{sub: b.Subscribe("test"), from: n})
			},
			"Next": func(t *rapid.T) {
				if len(subs) == 0 {
					return
				}
				s := rapid.SampledFrom(subs).Draw(t, "sub")
				want := s.from + s.delivered + s.lagged
				select {
				case <-s.sub.Ready(): // as a task does, which must be woken again
				default:
				}
				v, lagged, ok := s.sub.Next()
				if ok != (want < n) || ok && (v != want || int(lagged) != s.lagged-s.told) {
					t.Fatalf("Next = %d, %d, %v, want %d, %d, %v", v, lagged, ok, want, s.lagged-s.told, want < n)
				}
				if ok {
					s.delivered++
					s.told = s.lagged
				}
			},
			"": func(t *rapid.T) {
				for _, s := range subs {
					st := s.sub.Stats()
					if st.Published != st.Delivered+st.Lagged+st.Pending || st.Published != uint64(n-s.from) ||
						st.Delivered != uint64(s.delivered) || st.Lagged != uint64(s.lagged) {
						t.Fatalf("%+v, model %+v after %d values", st, *s, n)
					}
					if st.Pending > 0 && len(s.sub.Ready()) == 0 {
						t.Fatal("values are pending and Ready does not yield")
					}
				}
			},
		})
	})
}

// With publishers and readers at once: values come in order, delivered and lagged add up to what
// was published, and the close is seen.
func TestBroadcastAtOnce(t *testing.T) {
	const publishers, each, readers = 3, 2000, 3
	b := newBus(16)
	var reading, publishing sync.WaitGroup
	for i := range readers {
		s := b.Subscribe("test")
		read := readByRecv
		if i%2 == 1 {
			read = readByReady
		}
		reading.Go(func() {
			delivered, lagged := read(t, s)
			if delivered+lagged != publishers*each {
				t.Errorf("delivered %d + lagged %d ≠ published %d", delivered, lagged, publishers*each)
			}
		})
	}
	for p := range publishers {
		publishing.Go(func() {
			for i := range each {
				b.Publish(i*publishers + p)
			}
		})
	}
	publishing.Wait()
	b.Close()
	reading.Wait()
}

func readByRecv(t *testing.T, s *Subscription[int]) (delivered, lagged int) {
	order := newOrder(t)
	for {
		v, n, err := s.Recv(context.Background())
		if err != nil {
			return delivered, lagged
		}
		delivered, lagged = delivered+1, lagged+int(n)
		order(v)
	}
}

func readByReady(t *testing.T, s *Subscription[int]) (delivered, lagged int) {
	order := newOrder(t)
	for range s.Ready() {
		v, n, ok := s.Next() // one value a wake-up: Ready must yield again
		if ok {
			delivered, lagged = delivered+1, lagged+int(n)
			order(v)
		} else if s.Closed() {
			break
		}
	}
	return delivered, lagged
}

// newOrder returns a check that the values of each publisher grow.
func newOrder(t *testing.T) func(v int) {
	last := map[int]int{}
	return func(v int) {
		if before, ok := last[v%3]; ok && before >= v {
			t.Errorf("value %d came after %d", v, before)
		}
		last[v%3] = v
	}
}

func TestSubscriptionEnds(t *testing.T) {
	b := newBus(4)
	s, early := b.Subscribe("a"), b.Subscribe("b")
	b.Publish(1)
	early.Close()
	early.Close()
	if _, _, err := early.Recv(t.Context()); err != ErrClosed || !early.Closed() {
		t.Errorf("Recv of a closed subscription = %v", err)
	}
	b.Publish(2)
	b.Close()
	b.Close()
	b.Publish(3)
	for want := 1; want <= 2; want++ {
		if v, _, err := s.Recv(t.Context()); v != want || err != nil {
			t.Errorf("Recv = %d, %v, want %d", v, err, want)
		}
	}
	if _, _, err := s.Recv(t.Context()); err != ErrClosed {
		t.Errorf("Recv after the bus closed = %v", err)
	}
	late := b.Subscribe("late")
	if _, _, err := late.Recv(t.Context()); err != ErrClosed {
		t.Errorf("Recv of a subscription to a closed bus = %v", err)
	}
	s.Close()
	late.Close()
}

// A subscriber that waits in a select learns that the bus has closed.
func TestCloseWakesASelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(4)
		s := b.Subscribe("test")
		time.AfterFunc(time.Second, b.Close)
		select {
		case <-s.Ready():
		case <-time.After(time.Minute):
			t.Error("not woken")
		}
		if _, _, ok := s.Next(); ok || !s.Closed() {
			t.Errorf("Next = %v, Closed = %v", ok, s.Closed())
		}
	})
}

// So does one that subscribed too late.
func TestSubscribeToAClosedBusWakesASelect(t *testing.T) {
	b := newBus(4)
	b.Close()
	s := b.Subscribe("late")
	defer s.Close()
	select {
	case <-s.Ready():
	default:
		t.Error("not woken")
	}
	if _, _, ok := s.Next(); ok || !s.Closed() {
		t.Error("not closed")
	}
}

// Lag is counted when it happens, even if the subscriber is stalled, and warned about by the reader
// at most every 5 s.
func TestBroadcastTellsOfLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newFakeMeter()
		c := NewCatalog(m, hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Warn}))
		b := NewBroadcast[int](c, Spec{Service: "wallet", Name: "ledger_bus", Cap: 2})
		s := b.Subscribe("invalidator")
		lose := func(n int) {
			for i := range n + 2 {
				b.Publish(i)
			}
			for _, _, ok := s.Next(); ok; _, _, ok = s.Next() {
			}
		}
		for range 5 {
			b.Publish(0)
		}
		if n := m.count("bus_lagged_total{wallet,bus,ledger,consumer,invalidator}"); n != 3 {
			t.Errorf("bus_lagged_total = %d while stalled, want 3", n)
		}
		lose(0)
		lose(1)
		time.Sleep(5 * time.Second)
		lose(1)
		log := out.String()
		if strings.Count(log, "lags") != 2 || !strings.Contains(log, "lagged=5") || !strings.Contains(log, "lagged=2") {
			t.Errorf("warnings:\n%s", log)
		}
	})
}

func TestRecvLooksAtContextFirst(t *testing.T) {
	b := newBus(2)
	s := b.Subscribe("test")
	b.Publish(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrAborted)
	if _, _, err := s.Recv(ctx); err != ErrAborted || s.Stats().Pending != 1 {
		t.Errorf("Recv = %v, want the cause of ctx", err)
	}
}

// A bus counts under the label that its Spec gives, in which metrics may know it by another name.
func TestBroadcastLabel(t *testing.T) {
	m := newFakeMeter()
	b := NewBroadcast[int](
		NewCatalog(m, nil),
		Spec{Service: "wallet", Name: "events_tx", Cap: 1, Producers: []string{"worker"}, Label: "audit"},
	)
	sub := b.Subscribe("stream")
	defer sub.Close()
	b.Publish(1)
	b.Publish(2)
	if n := m.count("bus_lagged_total{wallet,bus,audit,consumer,stream}"); n != 1 {
		t.Errorf("%d, want 1: %v", n, m.counts)
	}
}
