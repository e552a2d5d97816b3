package line

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
)

// places is the number of places of the lines of these tests.
const places = 512

// job is a lookup of a test.
type job struct {
	from  netip.Addr
	quiet bool
}

func (j *job) Network() netip.Addr { return j.from }
func (j *job) Quiet() bool         { return j.quiet }

// network returns the n-th network of a test.
func network(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }

// Many networks that fill the line and the workers do not keep out one that asks little: it gets a
// place, for which another job is evicted, and the next free worker. Quiet jobs hold no more than
// their reserve that way.
func TestQuietNetworkHasAReserve(t *testing.T) {
	l := New[*job](8, places)
	asked := 0
	ask := func(quiet bool, room time.Duration) (j, evicted *job, err error) {
		asked++
		j = &job{from: netip.AddrFrom4([4]byte{10, 0, byte(asked >> 8), byte(asked)}), quiet: quiet}
		evicted, err = l.Push(j, room)
		return j, evicted, err
	}
	take := func() *job {
		j := l.Take()
		l.Done(j, time.Second) // the next worker is free
		return j
	}
	for range 8 + places {
		if asked == 8 {
			for range 8 {
				l.Take()
			}
		}
		if _, _, err := ask(false, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	l.held = time.Second
	if _, _, err := ask(false, 900*time.Millisecond); !errors.Is(err, flow.ErrBusy) {
		t.Errorf("another network: %v", err)
	}
	j, evicted, err := ask(true, 900*time.Millisecond)
	if err != nil || evicted == nil || evicted.quiet || l.queued != places {
		t.Fatalf("a quiet network: evicted %+v, %v", evicted, err)
	}
	if got := take(); got != j {
		t.Error("the quiet job does not get the next worker")
	}
	for range 8 {
		_, _, _ = ask(false, time.Hour) // fills the line again
	}
	reserved := 0
	for ; ; reserved++ {
		if _, _, err = ask(true, time.Hour); err != nil {
			break
		}
	}
	if reserved != places/shareOf || l.quietQueued != reserved {
		t.Errorf("%d places for quiet jobs, %d counted", reserved, l.quietQueued)
	}
	for i := range 3 {
		got := l.Take()
		if got.quiet != (i < l.reserve()) {
			t.Errorf("worker %d: quiet %t", i, got.quiet)
		}
		defer func() {
			if l.Done(got, time.Second); l.quietRunning != i {
				t.Errorf("%d quiet jobs run after job %d", l.quietRunning, i)
			}
		}()
	}
	if all := l.Flush(); len(all) != places-3 || l.quietQueued != 0 {
		t.Errorf("flushed %d, %d of them are counted as quiet", len(all), l.quietQueued)
	}
}

// The line agrees with a model: every pushed job is taken, evicted or withdrawn exactly once; the
// jobs of one network keep their order; the line is never longer than the queue; a network with a
// quarter of the places gets no more while another waits; and a worker goes to the waiting network
// with the fewest workers.
func TestLineIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New[*job](8, places)
		queued, running := map[netip.Addr][]*job{}, map[netip.Addr]int{}
		var busy []*job
		nets, total := rapid.IntRange(1, 6).Draw(t, "nets"), 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 7, 100}).Draw(t, "n") {
					j := &job{from: network(rapid.IntRange(1, nets).Draw(t, "net"))}
					mine, others := len(queued[j.from]), total-len(queued[j.from])
					gone, err := l.Push(j, time.Hour)
					if err != nil {
						if total < places && (others == 0 || mine < places/shareOf) {
							t.Fatalf("refused with %d of its own and %d others", mine, others)
						}
						continue
					}
					if others > 0 && mine >= places/shareOf {
						t.Fatalf("got a place with %d of its own and %d others", mine, others)
					}
					queued[j.from] = append(queued[j.from], j)
					total++
					if gone != nil {
						list := queued[gone.from]
						if total != places+1 || list[len(list)-1] != gone || gone.from == j.from {
							t.Fatal("the wrong job gave way")
						}
						queued[gone.from] = list[:len(list)-1]
						total--
					}
				}
			},
			"take": func(t *rapid.T) {
				j := l.Take()
				if (j == nil) != (total == 0) {
					t.Fatalf("took %v of %d", j, total)
				}
				if j == nil {
					return
				}
				for from, list := range queued {
					if len(list) > 0 && running[from] < running[j.from] {
						t.Fatal("a network with fewer workers waits")
					}
				}
				if queued[j.from][0] != j {
					t.Fatal("out of order")
				}
				queued[j.from] = queued[j.from][1:]
				running[j.from]++
				busy = append(busy, j)
				total--
			},
			"done": func(t *rapid.T) {
				if len(busy) > 0 {
					at := rapid.IntRange(0, len(busy)-1).Draw(t, "at")
					l.Done(busy[at], time.Duration(rapid.IntRange(0, 1000).Draw(t, "took"))*time.Millisecond)
					running[busy[at].from]--
					busy = slices.Delete(busy, at, at+1)
				}
			},
			"withdraw": func(t *rapid.T) {
				from := network(rapid.IntRange(1, nets).Draw(t, "net"))
				if list := queued[from]; len(list) > 0 {
					j := list[len(list)-1]
					if l.Withdraw(j) != j {
						t.Fatal("withdrew another")
					}
					queued[from] = list[:len(list)-1]
					total--
				}
			},
			"": func(t *rapid.T) {
				if l.queued != total || l.running != len(busy) || total > places || len(l.nets) > nets {
					t.Fatalf("%d queued, want %d; %d run, want %d", l.queued, total, l.running, len(busy))
				}
			},
		})
		if got := len(l.Flush()); got != total || l.queued != 0 {
			t.Fatalf("flushed %d of %d", got, total)
		}
		for _, j := range busy {
			l.Done(j, 0)
		}
		if len(l.nets) != 0 || len(l.waiting) != 0 || l.running != 0 {
			t.Fatalf("it still knows %d networks, %d of them wait", len(l.nets), len(l.waiting))
		}
	})
}
