package limit

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newBucket(rps float64, burst int) *Bucket {
	b := &Bucket{}
	b.Set(rps, burst)
	return b
}

func TestBucket(t *testing.T) {
	b := newBucket(10, 3)
	for i, tt := range []struct {
		at   time.Duration
		ok   bool
		wait time.Duration
	}{
		{0, true, 0}, {0, true, 0}, {0, true, 0}, // the burst
		{0, false, 100 * time.Millisecond}, {60 * time.Millisecond, false, 40 * time.Millisecond},
		{100 * time.Millisecond, true, 0}, {100 * time.Millisecond, false, 100 * time.Millisecond},
		// no more than the burst is saved up
		{10 * time.Second, true, 0}, {10 * time.Second, true, 0}, {10 * time.Second, true, 0},
		{10 * time.Second, false, 100 * time.Millisecond},
	} {
		if ok, wait := b.Take(noon.Add(tt.at)); ok != tt.ok || wait != tt.wait {
			t.Errorf("step %d: %v, %s, want %v, %s", i, ok, wait, tt.ok, tt.wait)
		}
	}
}

func TestOff(t *testing.T) {
	var zero Bucket
	table := NewKeyed[string](4, 0, 0)
	for range 1000 {
		a, _ := zero.Take(noon)
		b, _ := newBucket(0, 5).Take(noon)
		c, _ := table.Take("x", noon)
		d, _ := table.Peek("x", noon)
		if !a || !b || !c || !d {
			t.Fatal("a rate of 0 refuses")
		}
	}
	if len(table.slots) != 0 {
		t.Error("a table that is off remembers keys")
	}
}

func TestSet(t *testing.T) {
	b := newBucket(1, 100)
	for range 100 {
		b.Take(noon)
	}
	b.Set(100, 10) // far ahead by the old rate, which the new one does not make up for
	if ok, wait := b.Take(noon); ok || wait != 10*time.Millisecond {
		t.Errorf("%v, %s: want empty", ok, wait)
	}
	if ok, _ := b.Take(noon.Add(10 * time.Millisecond)); !ok {
		t.Error("does not fill at its new rate")
	}
	b.Set(0, 0)
	if ok, _ := b.Take(noon); !ok {
		t.Error("off, and refuses")
	}
}

// A clock that jumps back by a day does not close a bucket for a day.
func TestClockJumpsBack(t *testing.T) {
	b := newBucket(2, 4)
	b.Take(noon)
	back := noon.Add(-24 * time.Hour)
	if ok, wait := b.Take(back); ok || wait != 500*time.Millisecond {
		t.Errorf("%v, %s: want empty", ok, wait)
	}
	if ok, _ := b.Take(back.Add(500 * time.Millisecond)); !ok {
		t.Error("did not start over")
	}
	table := NewKeyed[int](1, 2, 4)
	table.Take(1, noon)
	if ok, wait := table.Peek(1, back); ok || wait != 500*time.Millisecond {
		t.Errorf("peek: %v, %s: want empty", ok, wait)
	}
	if ok, _ := table.Peek(1, back.Add(500*time.Millisecond)); !ok {
		t.Error("peeking alone does not start over")
	}
}

// However the clock jumps, no wait is more than a second longer than at an empty bucket.
func TestClockJumps(t *testing.T) {
	const day = int64(24 * time.Hour)
	rapid.Check(t, func(t *rapid.T) {
		rps := rapid.Float64Range(.1, 5000).Draw(t, "rps")
		b, now := newBucket(rps, rapid.IntRange(1, 500).Draw(t, "burst")), noon
		for _, jump := range rapid.SliceOfN(rapid.Int64Range(-day, day), 1, 50).Draw(t, "jumps") {
			now = now.Add(time.Duration(jump))
			if ok, wait := b.Take(now); !ok && wait > time.Duration(float64(time.Second)/rps)+time.Second {
				t.Fatalf("refused for %s", wait)
			}
		}
	})
}

// However callers come, no span holds more than burst + rate·span tokens, and a caller that waits
// as long as it must is served.
func TestNeverMoreThanItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rps, burst := rapid.Float64Range(.1, 5000).Draw(t, "rps"), rapid.IntRange(1, 500).Draw(t, "burst")
		b, table := newBucket(rps, burst), NewKeyed[int](1, rps, burst)
		now, taken := noon, []time.Time{}
		for _, step := range rapid.SliceOfN(rapid.Int64Range(0, int64(2*time.Second/time.Duration(1+rps))), 1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(step))
			peeked, _ := table.Peek(1, now)
			ok, wait := b.Take(now)
			if keyed, keyedWait := table.Take(1, now); keyed != ok || keyedWait != wait || peeked != ok {
				t.Fatalf("alone %v, %s; peeked %v; in a table %v, %s", ok, wait, peeked, keyed, keyedWait)
			}
			if !ok {
				if wait <= 0 {
					t.Fatalf("refused, to come back after %s", wait)
				}
				now = now.Add(wait)
				table.Take(1, now)
				if ok, _ = b.Take(now); !ok {
					t.Fatalf("waited %s as told, and refused", wait)
				}
			}
			taken = append(taken, now)
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				most := float64(burst) + rps*taken[j].Sub(taken[i]).Seconds()
				if n := j - i + 1; float64(n) > most+1e-3*float64(n)+1e-6 {
					t.Fatalf("%d tokens within %s at %g/s, burst %d", n, taken[j].Sub(taken[i]), rps, burst)
				}
			}
		}
	})
}

// Left is the number of available tokens, with the time until the bucket is full.
func TestLeft(t *testing.T) {
	table := NewKeyed[string](2, 2, 3)
	for i, tt := range []struct {
		at     time.Duration
		ok     bool
		tokens int
		full   time.Duration
	}{
		{0, true, 2, 500 * time.Millisecond}, {0, true, 1, time.Second}, {0, true, 0, 1500 * time.Millisecond}, {0, false, 0, 1500 * time.Millisecond},
		{500 * time.Millisecond, true, 0, 1500 * time.Millisecond}, {time.Minute, true, 2, 500 * time.Millisecond},
	} {
		ok, wait, left, limited := table.TakeLeft("x", noon.Add(tt.at))
		if ok != tt.ok || ok != (wait == 0) || !limited || left != (Left{Tokens: tt.tokens, Burst: 3, Full: tt.full}) {
			t.Errorf("step %d: %v, %s, %+v, %v", i, ok, wait, left, limited)
		}
	}
	table.Set(0, 0)
	if ok, _, _, limited := table.TakeLeft("x", noon); !ok || limited {
		t.Error("off, and refuses or limits")
	}
}

// As many tokens as are reported left can be taken, and no more.
func TestLeftIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewKeyed[int](1, rapid.Float64Range(.1, 5000).Draw(t, "rps"), rapid.IntRange(1, 50).Draw(t, "burst"))
		now := noon
		for _, step := range rapid.SliceOfN(rapid.Int64Range(0, int64(time.Second)), 1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(step))
			_, _, left, _ := table.TakeLeft(1, now)
			for range left.Tokens {
				if ok, _ := table.Take(1, now); !ok {
					t.Fatalf("%+v, and less", left)
				}
			}
			if ok, _ := table.Take(1, now); ok {
				t.Fatalf("%+v, and more", left)
			}
			if left.Tokens > left.Burst-1 {
				t.Fatalf("%+v after one was taken", left)
			}
		}
	})
}

func TestKeyed(t *testing.T) {
	table := NewKeyed[string](2, 1, 2)
	take := func(key string, want bool) {
		t.Helper()
		if ok, _ := table.Take(key, noon); ok != want {
			t.Errorf("%s: %v, want %v", key, ok, want)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false)
	take("b", true) // each key has its own
	take("a", false)
	take("c", true) // b was idle longest, and is forgotten
	take("a", false)
	take("b", true)
	take("b", true) // it has a new bucket; c was evicted
	if len(table.index) != 2 || len(table.slots) != 2 {
		t.Errorf("%d keys in %d slots, want 2", len(table.index), len(table.slots))
	}
	if ok, _ := table.Peek("unheard of", noon); !ok || len(table.index) != 2 {
		t.Error("a look left a trace")
	}
}

func TestKeyedSetAndTakeAt(t *testing.T) {
	table := NewKeyed[int](8, 1, 1)
	table.Take(1, noon)
	if ok, _ := table.Take(1, noon); ok {
		t.Error("over its burst")
	}
	table.Set(1000, 10)
	if ok, _ := table.Take(1, noon.Add(time.Second)); !ok {
		t.Error("not at the new rate")
	}
	for i := range 5 {
		if ok, _ := table.TakeAt(2, noon, Per(1, 3)); ok != (i < 3) {
			t.Errorf("take %d at its own rate: %v", i, ok)
		}
	}
	if ok, _ := table.TakeAt(2, noon, Rate{}); !ok {
		t.Error("the zero rate refuses")
	}
}

// The table and its list agree after any sequence of calls, and hold no more keys than there is
// room for.
func TestKeyedIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 8).Draw(t, "room")
		table := NewKeyed[int](room, 5, 2)
		order := []int{}
		for _, key := range rapid.SliceOf(rapid.IntRange(0, 12)).Draw(t, "keys") {
			table.Take(key, noon)
			order = touch(order, key, room)
			got := []int{}
			for i := table.head; i != none; i = table.slots[i].older {
				got = append(got, table.slots[i].key)
			}
			if len(got) != len(order) || len(table.index) != len(order) {
				t.Fatalf("holds %v, want %v", got, order)
			}
			for i := range got {
				if got[i] != order[i] {
					t.Fatalf("holds %v, want %v", got, order)
				}
			}
		}
	})
}

// touch is the model: keys by their last use, the first room of them.
func touch(order []int, key, room int) []int {
	next := []int{key}
	for _, k := range order {
		if k != key && len(next) < room {
			next = append(next, k)
		}
	}
	return next
}

func TestManyAtOnce(t *testing.T) {
	b, table := newBucket(1, 100), NewKeyed[int](4, 1, 100)
	var alone, keyed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if ok, _ := b.Take(noon); ok {
					alone.Add(1)
				}
				if ok, _ := table.Take(7, noon); ok {
					keyed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if alone.Load() != 100 || keyed.Load() != 100 {
		t.Errorf("%d and %d tokens, want the burst of 100", alone.Load(), keyed.Load())
	}
}

func TestNoAllocations(t *testing.T) {
	b, table := newBucket(1000, 10), NewKeyed[[16]byte](64, 1000, 10)
	for i := range 64 {
		table.Take([16]byte{byte(i)}, noon)
	}
	now, i := noon, 0
	if n := testing.AllocsPerRun(1000, func() {
		now, i = now.Add(time.Millisecond), i+1
		b.Take(now)
		table.Take([16]byte{byte(i % 64)}, now)
		table.Peek([16]byte{byte(i % 64)}, now)
	}); n != 0 {
		t.Errorf("%g allocations a call", n)
	}
}

func BenchmarkBucket(b *testing.B) {
	k, now := newBucket(1e9, 1000), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			k.Take(now)
		}
	})
}

// Every call brings another key, so that in the long run each evicts one.
func BenchmarkKeyed(b *testing.B) {
	k, now := NewKeyed[[16]byte](65536, 100, 200), time.Now()
	var n atomic.Uint32
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			i := n.Add(1)
			k.Take([16]byte{byte(i), byte(i >> 8), byte(i >> 16)}, now)
		}
	})
}

// A host has its whole /64, and one address however it is written.
func TestNetworks(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
		"2001:db8:1:2:ffff::1": "2001:db8:1:2::", "2001:db8:1:3::1": "2001:db8:1:3::",
	} {
		if got := Network(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
