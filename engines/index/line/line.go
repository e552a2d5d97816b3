package line

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ronbox/appliance/flow"
)

// shareOf is the divisor of the share of the workers and of the queue that one network keeps while
// another waits: a quarter.
const shareOf = 4

// Job is a lookup that waits for a worker, and is compared by its identity.
type Job interface {
	comparable
	Network() netip.Addr // of its first caller
	Quiet() bool         // the network has asked little
}

// Line holds the jobs of a queue by network, so that one network cannot crowd out the others. It
// holds a job for each turn that is in the queue or about to be sent. Its methods do not block.
//
// A worker takes the oldest job of the network with the fewest workers, so a network above its
// quarter yields to every waiting network with less. A network that holds a quarter of the places
// gets no more while another waits. If the line is full, the newest job of the network with the
// most jobs is evicted for a network that has fewer.
//
// So that many networks together cannot crowd out one that asks little, quiet jobs have a reserve:
// a free worker takes one first while they hold less than a quarter of the workers, and while they
// hold less than a quarter of the places, another job is evicted for one.
type Line[J Job] struct {
	workers int
	places  int // jobs that it holds at most

	mu      sync.Mutex // a leaf
	nets    map[netip.Addr]*netJobs[J]
	waiting []*netJobs[J] // networks with jobs, least recently served first; guarded by mu, as are the fields below
	queued  int           // number of queued jobs
	running int           // number of jobs held by workers
	held    time.Duration // moving average of the time that a lookup holds a worker

	quietQueued, quietRunning int // quiet jobs among these
}

// netJobs are the jobs of one network.
type netJobs[J Job] struct {
	from    netip.Addr
	jobs    []J // oldest first
	running int
}

// New returns an empty line for a number of workers and of places.
func New[J Job](workers, places int) *Line[J] {
	return &Line[J]{workers: workers, places: places, nets: map[netip.Addr]*netJobs[J]{}}
}

// Push adds j. It returns flow.ErrBusy if j could not be begun within room, or if its network has
// used its share and another network waits. An evicted job, unless it is the zero J, leaves its
// turn to j.
func (l *Line[J]) Push(j J, room time.Duration) (evicted J, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := j.Network()
	n := l.nets[from]
	if n == nil {
		n = &netJobs[J]{from: from}
	}
	alone := l.queued == len(n.jobs)
	reserved := j.Quiet() && l.quietQueued < l.places/shareOf
	wait := l.wait(n)
	if reserved {
		wait = min(wait, l.held*time.Duration(l.quietQueued+1)/time.Duration(l.reserve()))
	}
	if !alone && len(n.jobs) >= l.places/shareOf || wait > room {
		return evicted, flow.ErrBusy
	}
	if l.queued == l.places {
		most := slices.MaxFunc(l.waiting, func(a, b *netJobs[J]) int {
			return cmp.Or(a.yields(reserved)-b.yields(reserved), len(a.jobs)-len(b.jobs))
		})
		if len(most.jobs) <= len(n.jobs)+1 && (most == n || most.yields(reserved) == 0) {
			return evicted, flow.ErrBusy
		}
		evicted = most.jobs[len(most.jobs)-1]
		l.remove(most, len(most.jobs)-1)
	}
	l.nets[from] = n
	if len(n.jobs) == 0 {
		l.waiting = append(l.waiting, n)
	}
	n.jobs = append(n.jobs, j)
	l.queued++
	l.quietQueued += quietly(j)
	return evicted, nil
}

// reserve returns the number of workers that quiet jobs have for themselves.
func (l *Line[J]) reserve() int { return max(1, l.workers/shareOf) }

// quietly returns 1 for a quiet job, or 0.
func quietly[J Job](j J) int {
	if j.Quiet() {
		return 1
	}
	return 0
}

// yields returns 1 if the newest job of n is to be evicted for a job with a reserved place, or 0.
func (n *netJobs[J]) yields(reserved bool) int {
	if !reserved {
		return 0
	}
	return 1 - quietly(n.jobs[len(n.jobs)-1])
}

// wait estimates the time that a new job of n waits for a worker. The caller holds mu.
func (l *Line[J]) wait(n *netJobs[J]) time.Duration {
	ahead := 0
	for _, one := range l.waiting {
		ahead += min(len(one.jobs), len(n.jobs)+1)
	}
	free := l.workers - l.running
	return l.held * time.Duration(max(0, ahead+1-free)) / time.Duration(l.workers)
}

// Size returns the number of queued jobs and of jobs held by workers.
func (l *Line[J]) Size() (queued, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued, l.running
}

// Take removes the next job for a worker. It returns the zero J if the line is empty.
func (l *Line[J]) Take() (j J) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == 0 {
		return j
	}
	first := l.quietRunning < l.reserve()
	next := slices.MinFunc(l.waiting, func(a, b *netJobs[J]) int { // the first one if several are equal
		if q := quietly(b.jobs[0]) - quietly(a.jobs[0]); first && q != 0 {
			return q
		}
		return a.running - b.running
	})
	j = next.jobs[0]
	next.running++
	l.running++
	l.quietRunning += quietly(j)
	l.remove(next, 0)
	if len(next.jobs) > 0 { // the network moves to the end of the line
		at := slices.Index(l.waiting, next)
		l.waiting = append(slices.Delete(l.waiting, at, at+1), next)
	}
	return j
}

// Done releases the worker of a job. asked is the time for which peers were asked, or 0.
func (l *Line[J]) Done(j J, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nets[j.Network()]
	n.running--
	l.running--
	l.quietRunning -= quietly(j)
	if asked > 0 {
		l.held += (asked - l.held) / 8
	}
	l.release(n)
}

// Withdraw removes one job because a turn could not be sent: j, or another job if a worker has
// already taken j on the turn of that job. It returns the zero J if the line is empty.
func (l *Line[J]) Withdraw(j J) (gone J) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nets[j.Network()]; n != nil {
		if at := slices.Index(n.jobs, j); at >= 0 {
			l.remove(n, at)
			return j
		}
	}
	if l.queued == 0 {
		return gone
	}
	n := l.waiting[0]
	gone = n.jobs[0]
	l.remove(n, 0)
	return gone
}

// Flush removes and returns all jobs.
func (l *Line[J]) Flush() (all []J) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queued > 0 {
		n := l.waiting[0]
		all = append(all, n.jobs[0])
		l.remove(n, 0)
	}
	return all
}

// remove removes the job of n at an index. The caller holds mu.
func (l *Line[J]) remove(n *netJobs[J], at int) {
	l.quietQueued -= quietly(n.jobs[at])
	if at == 0 {
		var none J
		n.jobs[0] = none
		n.jobs = n.jobs[1:]
	} else {
		n.jobs = slices.Delete(n.jobs, at, at+1)
	}
	l.queued--
	if len(n.jobs) == 0 {
		at := slices.Index(l.waiting, n)
		l.waiting = slices.Delete(l.waiting, at, at+1)
		n.jobs = nil
	}
	l.release(n)
}

// release forgets a network without jobs. The caller holds mu.
func (l *Line[J]) release(n *netJobs[J]) {
	if len(n.jobs) == 0 && n.running == 0 {
		delete(l.nets, n.from)
	}
}
