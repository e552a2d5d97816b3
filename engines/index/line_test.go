package index

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
)

// Many networks that fill the line and the workers do not keep out one that asks little: it gets a
// place, for which another job is evicted, and the next free worker. Quiet jobs hold no more than
// their reserve that way.
func TestQuietNetworkHasAReserve(t *testing.T) {
	l := newLine(8)
	asked := 0
	ask := func(quiet bool, room time.Duration) (j, evicted *job, err error) {
		asked++
		j = &job{from: netip.AddrFrom4([4]byte{10, 0, byte(asked >> 8), byte(asked)}), quiet: quiet}
		evicted, err = l.push(j, room)
		return j, evicted, err
	}
	take := func() *job {
		j := l.take()
		l.done(j, time.Second) // the next worker is free
		return j
	}
	for range 8 + workCap {
		if asked == 8 {
			for range 8 {
				l.take()
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
	if err != nil || evicted == nil || evicted.quiet || l.queued != workCap {
		t.Fatalf("a quiet network: evicted %+v, %v", evicted, err)
	}
	if got := take(); got != j {
		t.Error("the quiet job does not get the next worker")
	}
	for range 8 {
		_, _, _ = ask(false, time.Hour) // fills the line again
	}
	places := 0
	for ; ; places++ {
		if _, _, err = ask(true, time.Hour); err != nil {
			break
		}
	}
	if places != workCap/shareOf || l.quietQueued != places {
		t.Errorf("%d places for quiet jobs, %d counted", places, l.quietQueued)
	}
	for i := range 3 {
		got := l.take()
		if got.quiet != (i < l.reserve()) {
			t.Errorf("worker %d: quiet %t", i, got.quiet)
		}
		defer func() {
			if l.done(got, time.Second); l.quietRunning != i {
				t.Errorf("%d quiet jobs run after job %d", l.quietRunning, i)
			}
		}()
	}
	if all := l.flush(); len(all) != workCap-3 || l.quietQueued != 0 {
		t.Errorf("flushed %d, %d of them are counted as quiet", len(all), l.quietQueued)
	}
}

// The line agrees with a model: every pushed job is taken, evicted or withdrawn exactly once; the
// jobs of one network keep their order; the line is never longer than the queue; a network with a
// quarter of the places gets no more while another waits; and a worker goes to the waiting network
// with the fewest workers.
func TestLineIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(8)
		queued, running := map[netip.Addr][]*job{}, map[netip.Addr]int{}
		var busy []*job
		nets, total := rapid.IntRange(1, 6).Draw(t, "nets"), 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 7, 100}).Draw(t, "n") {
					j := &job{from: network(rapid.IntRange(1, nets).Draw(t, "net"))}
					mine, others := len(queued[j.from]), total-len(queued[j.from])
					gone, err := l.push(j, time.Hour)
					if err != nil {
						if total < workCap && (others == 0 || mine < workCap/shareOf) {
							t.Fatalf("refused with %d of its own and %d others", mine, others)
						}
						continue
					}
					if others > 0 && mine >= workCap/shareOf {
						t.Fatalf("got a place with %d of its own and %d others", mine, others)
					}
					queued[j.from] = append(queued[j.from], j)
					total++
					if gone != nil {
						list := queued[gone.from]
						if total != workCap+1 || list[len(list)-1] != gone || gone.from == j.from {
							t.Fatal("the wrong job gave way")
						}
						queued[gone.from] = list[:len(list)-1]
						total--
					}
				}
			},
			"take": func(t *rapid.T) {
				j := l.take()
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
					l.done(busy[at], time.Duration(rapid.IntRange(0, 1000).Draw(t, "took"))*time.Millisecond)
					running[busy[at].from]--
					busy = slices.Delete(busy, at, at+1)
				}
			},
			"withdraw": func(t *rapid.T) {
				from := network(rapid.IntRange(1, nets).Draw(t, "net"))
				if list := queued[from]; len(list) > 0 {
					j := list[len(list)-1]
					if l.withdraw(j) != j {
						t.Fatal("withdrew another")
					}
					queued[from] = list[:len(list)-1]
					total--
				}
			},
			"": func(t *rapid.T) {
				if l.queued != total || l.running != len(busy) || total > workCap || len(l.nets) > nets {
					t.Fatalf("%d queued, want %d; %d run, want %d", l.queued, total, l.running, len(busy))
				}
			},
		})
		if got := len(l.flush()); got != total || l.queued != 0 {
			t.Fatalf("flushed %d of %d", got, total)
		}
	})
}
