package lookup

import (
	"fmt"
	"math"
	"testing"
	"time"

	"ronbox/appliance/flow"
)

// interleave calls try with every interleaving of the steps of several threads.
func interleave(steps []int, order []int, try func(order []int)) {
	over := true
	for i := range steps {
		if steps[i] == 0 {
			continue
		}
		over = false
		steps[i]--
		interleave(steps, append(order, i), try)
		steps[i]++
	}
	if over {
		try(order)
	}
}

// Times of the answers of these tests.
const ttl, neg, staleFor = 10 * time.Second, 2 * time.Second, 10 * time.Minute

// opened returns an empty cache.
func opened(t *testing.T) *Answers {
	a := NewAnswers(flow.NewCatalog(nil, nil), nil, time.Now, 100<<20)
	if err := a.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// Two fillers and two writes in every order of their steps: after a write has moved the fence, no
// earlier entry is a hit. The same holds after a filler has learned that the key is gone.
func TestFenceUnderEverySchedule(t *testing.T) {
	a := opened(t)
	count := 0
	interleave([]int{3, 3, 2, 2}, nil, func(order []int) {
		count++
		k := fmt.Sprint("name:k", count)
		version, acked := uint64(1), uint64(1) // the state of the file, and the answers
		type filler struct {
			mark Mark
			saw  uint64
		}
		var fillers [2]filler
		step := [4]int{}
		for _, who := range order {
			at := step[who]
			step[who]++
			switch {
			case who >= 2 && at == 0:
				version++
			case who >= 2:
				a.Outdate(k)
				acked = version
			case at == 0:
				fillers[who].mark = a.Mark(k, math.MaxInt64)
			case at == 1:
				fillers[who].saw = version
			default:
				n := &Entry{Key: k, Fence: fillers[who].mark, Found: true, Seq: fillers[who].saw}
				a.Keep(n, ttl, staleFor, 0)
			}
			if n, ok := a.Get(k); ok && n.Fence.holds() && n.Seq < acked {
				t.Fatalf("%v: version %d is a hit after %d was answered", order, n.Seq, acked)
			}
		}
	})
	if count != 25_200 {
		t.Errorf("%d schedules", count)
	}
	gone := "name:gone"
	late := a.Mark(gone, math.MaxInt64)
	a.Keep(&Entry{Key: gone, Fence: a.Mark(gone, math.MaxInt64), Found: true}, ttl, staleFor, 0)
	a.Settle()
	a.Keep(&Entry{Key: gone, Fence: a.Mark(gone, math.MaxInt64)}, neg, staleFor, 0)
	a.Keep(&Entry{Key: gone, Fence: late, Found: true}, ttl, staleFor, 0)
	if n, ok := a.Get(gone); ok && n.Found && n.Fence.holds() {
		t.Error("what was taken back is a hit")
	}
}

// A cell lives until the latest end it was given. References to a removed cell are outdated.
func TestCellsAreFreed(t *testing.T) {
	f := newFences()
	held, gone := f.mark("held", 2), f.mark("gone", 2)
	held.extend(3)
	for i := range 10_000 {
		f.mark(fmt.Sprint("name:n", i), 1)
	}
	sweep := func(now int64, want int) {
		for range sweepParts {
			f.sweep(now)
		}
		if n := f.len(); n != want {
			t.Errorf("%d cells after %d, want %d", n, now, want)
		}
	}
	sweep(0, 10_002)
	sweep(1, 2)
	if !gone.holds() {
		t.Error("a cell was moved before its end")
	}
	sweep(2, 1)
	if gone.holds() {
		t.Error("a mark of a cell that is gone holds")
	}
	if again := f.mark("gone", 2); again.At == gone.At || gone.holds() {
		t.Error("a new cell counts as the one before")
	}
	if f.bump("held"); held.holds() {
		t.Error("a write does not outdate what was marked before")
	}
	if again := f.mark("held", 0); again.cell != held.cell || !again.holds() {
		t.Error("a second cell of one key")
	}
}

// len returns the number of cells.
func (f *fences) len() (n int) {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		n += len(s.cells)
		s.mu.Unlock()
	}
	return n
}

// The cells of evicted entries are removed before the end of the stale time.
func TestCellsGoWithTheirEntries(t *testing.T) {
	a := opened(t)
	end := time.Now().Add(time.Second).UnixNano()
	for i := range 50 {
		k := fmt.Sprint("name:n", i)
		a.Keep(&Entry{Key: k, Fence: a.Mark(k, end), Found: true}, ttl, staleFor, 0)
	}
	a.Settle()
	if n := a.fences.len(); n != 50 {
		t.Errorf("%d cells", n)
	}
	a.Purge()
	for range sweepParts {
		a.Sweep(nil, end)
	}
	if n := a.fences.len(); n != 0 {
		t.Errorf("%d cells after a purge", n)
	}
}
