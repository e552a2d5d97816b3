package obs

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Board is the probe table of a node. It is safe for concurrent use; a nil *Board takes everything and is always ready.
type Board struct {
	metrics *Metrics

	mu   sync.Mutex
	rows []*row // by service, then key; guarded by mu
}

// NewBoard is an empty table. Each key added shows as readyz_degraded{cause=key}, 1 while it fails.
func NewBoard(m *Metrics) *Board {
	return &Board{metrics: m}
}

// Add puts keys into the table. A new key fails with cause "starting" until it is first set or sampled; adding a key again replaces its
// definition and keeps its state.
func (b *Board) Add(p ...Probe) {
	if b == nil {
		return
	}
	for _, one := range p {
		b.add(one)
	}
}

func (b *Board) add(p Probe) {
	b.mu.Lock()
	at, known := b.find(p.Service, p.Key)
	if known {
		b.rows[at].Probe = p
	} else {
		b.rows = slices.Insert(b.rows, at, &row{Probe: p, cause: errStarting, fresh: true})
	}
	b.mu.Unlock()
	if !known {
		b.metrics.Gauge("readyz_degraded", p.Service, func() float64 { return b.failing(p.Service, p.Key) }, "cause", p.Key)
	}
}

// find wants b.mu held. It gives the row's place, or where it belongs.
func (b *Board) find(service, key string) (int, bool) {
	return slices.BinarySearchFunc(b.rows, [2]string{service, key}, func(r *row, want [2]string) int {
		return cmp.Or(cmp.Compare(r.Service, want[0]), cmp.Compare(r.Key, want[1]))
	})
}

// failing is 1 while the key fails.
func (b *Board) failing(service, key string) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.find(service, key); ok && b.rows[at].cause != nil {
		return 1
	}
	return 0
}

// Set flips a key at once, whatever its samples said: nil says that it holds. A key that was never added, such as one of a task that
// keeps failing, is added as hard and of the write plane.
func (b *Board) Set(service, key string, cause error) {
	if b == nil {
		return
	}
	if b.set(service, key, cause) {
		return
	}
	b.add(Probe{Service: service, Key: key, Hard: true, Plane: WritePlane})
	b.set(service, key, cause)
}

func (b *Board) set(service, key string, cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.find(service, key)
	if ok {
		b.rows[at].set(cause)
	}
	return ok
}

// Sample runs the Funcs that are due at now, one after the other and outside the lock, and applies Bad and Good. Several tasks may call
// it; each sample is run by one of them. A sample during which its key was set is stale.
func (b *Board) Sample(now time.Time) {
	if b == nil {
		return
	}
	for _, d := range b.claimDue(now) {
		cause := d.run()
		b.mu.Lock()
		if d.row.sets == d.sets {
			d.row.sampled(cause)
		}
		b.mu.Unlock()
	}
}

// claim is a sample to be taken: the probe, its row, and how often that had been set. A row is never taken out of the table.
type claim struct {
	Probe
	row  *row
	sets uint
}

// claimDue moves the due rows' next sample ahead.
func (b *Board) claimDue(now time.Time) []claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []claim
	for _, r := range b.rows {
		if r.Func != nil && !now.Before(r.due) {
			r.due = now.Add(r.Every)
			due = append(due, claim{r.Probe, r, r.sets})
		}
	}
	return due
}
