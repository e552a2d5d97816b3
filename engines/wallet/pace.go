package wallet

import (
	"slices"
	"sync/atomic"
	"time"
)

// maxWorkers bounds the committers, and with them the calls that change something at one time.
const maxWorkers = 64

// callTable says when each call under way began, without a lock: a watchdog reads it while callers come and go.
type callTable struct {
	base  time.Time
	began [maxWorkers]atomic.Int64 // ns since base, at least 1; 0: free
}

// begin notes a call. It returns its place for end, -1 if there is none left.
func (t *callTable) begin(now time.Time) int {
	at := max(now.Sub(t.base).Nanoseconds(), 1)
	for i := range t.began {
		if t.began[i].Load() == 0 && t.began[i].CompareAndSwap(0, at) {
			return i
		}
	}
	return -1
}

func (t *callTable) end(place int) {
	if place >= 0 {
		t.began[place].Store(0)
	}
}

// oldest is for how long the oldest call has been under way, 0 if none is.
func (t *callTable) oldest(now time.Time) (age time.Duration) {
	for i := range t.began {
		if at := t.began[i].Load(); at != 0 {
			age = max(age, now.Sub(t.base)-time.Duration(at))
		}
	}
	return age
}

// Bounds of the pace.
const (
	paceCalls = 1024            // calls that the percentile is over
	paceLeast = 128             // fewer say nothing
	paceRaise = 4               // a stall is this often as long as the 99th percentile
	paceMost  = 1 * time.Second // and at most this: a call is given up then
)

// pace remembers how long the last calls took, so that a slow disk is not taken for one that stands still.
type pace struct {
	took [paceCalls]atomic.Int64 // ns
	n    atomic.Uint64
	p99  atomic.Int64 // ns, as of the last measure; 0: not known
}

func (p *pace) add(d time.Duration) {
	p.took[(p.n.Add(1)-1)%paceCalls].Store(int64(d))
}

// measure computes the 99th percentile.
func (p *pace) measure() {
	n := min(p.n.Load(), paceCalls)
	if n < paceLeast {
		return
	}
	took := make([]int64, n)
	for i := range took {
		took[i] = p.took[i].Load()
	}
	slices.Sort(took)
	p.p99.Store(took[len(took)*99/100])
}

// stall is how long a call may take before it counts as stalled: least, or more on a slow disk.
func (p *pace) stall(least time.Duration) time.Duration {
	return max(least, min(paceRaise*time.Duration(p.p99.Load()), paceMost))
}
