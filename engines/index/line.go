package index

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

// turn is an item of work_tx: the right to take one job from the line.
type turn struct{}

// line holds the jobs of work_tx by network, so that one network cannot crowd out the others. It
// holds a job for each turn that is in the queue or about to be sent.
//
// A worker takes the oldest job of the network with the fewest workers, so a network above its
// quarter yields to every waiting network with less. A network that holds a quarter of the places
// gets no more while another waits. If the line is full, the newest job of the network with the
// most jobs is evicted for a network that has fewer.
//
// So that many networks together cannot crowd out one that asks little, quiet jobs have a reserve:
// a free worker takes one first while they hold less than a quarter of the workers, and while they
// hold less than a quarter of the places, another job is evicted for one.
type line struct {
	workers int

	mu      sync.Mutex // a leaf
	nets    map[netip.Addr]*netJobs
	waiting []*netJobs    // networks with jobs, least recently served first; guarded by mu, as are the fields below
	queued  int           // number of queued jobs
	running int           // number of jobs held by workers
	held    time.Duration // moving average of the time that a lookup holds a worker

	quietQueued, quietRunning int // quiet jobs among these
}

// netJobs are the jobs of one network.
type netJobs struct {
	from    netip.Addr
	jobs    []*job // oldest first
	running int
}

func newLine(workers int) *line {
	return &line{workers: workers, nets: map[netip.Addr]*netJobs{}}
}

// push adds j. It returns flow.ErrBusy if j could not be begun within room, or if its network has
// used its share and another network waits. An evicted job, if any, leaves its turn to j.
func (l *line) push(j *job, room time.Duration) (evicted *job, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nets[j.from]
	if n == nil {
		n = &netJobs{from: j.from}
	}
	alone := l.queued == len(n.jobs)
	reserved := j.quiet && l.quietQueued < workCap/shareOf
	wait := l.wait(n)
	if reserved {
		wait = min(wait, l.held*time.Duration(l.quietQueued+1)/time.Duration(l.reserve()))
	}
	if !alone && len(n.jobs) >= workCap/shareOf || wait > room {
		return nil, flow.ErrBusy
	}
	if l.queued == workCap {
		most := slices.MaxFunc(l.waiting, func(a, b *netJobs) int {
			return cmp.Or(a.yields(reserved)-b.yields(reserved), len(a.jobs)-len(b.jobs))
		})
		if len(most.jobs) <= len(n.jobs)+1 && (most == n || most.yields(reserved) == 0) {
			return nil, flow.ErrBusy
		}
		evicted = most.jobs[len(most.jobs)-1]
		l.remove(most, len(most.jobs)-1)
	}
	l.nets[j.from] = n
	if len(n.jobs) == 0 {
		l.waiting = append(l.waiting, n)
	}
	n.jobs = append(n.jobs, j)
	l.queued++
	l.quietQueued += j.quietly()
	return evicted, nil
}

// reserve returns the number of workers that quiet jobs have for themselves.
func (l *line) reserve() int { return max(1, l.workers/shareOf) }

// quietly returns 1 for a quiet job, or 0.
func (j *job) quietly() int {
	if j.quiet {
		return 1
	}
	return 0
}

// yields returns 1 if the newest job of n is to be evicted for a job with a reserved place, or 0.
func (n *netJobs) yields(reserved bool) int {
	if !reserved {
		return 0
	}
	return 1 - n.jobs[len(n.jobs)-1].quietly()
}

// wait estimates the time that a new job of n waits for a worker. The caller holds mu.
func (l *line) wait(n *netJobs) time.Duration {
	ahead := 0
	for _, one := range l.waiting {
		ahead += min(len(one.jobs), len(n.jobs)+1)
	}
	free := l.workers - l.running
	return l.held * time.Duration(max(0, ahead+1-free)) / time.Duration(l.workers)
}

// size returns the number of queued jobs and of jobs held by workers.
func (l *line) size() (queued, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued, l.running
}

// take removes the next job for a worker. It returns nil if the line is empty.
func (l *line) take() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == 0 {
		return nil
	}
	first := l.quietRunning < l.reserve()
	next := slices.MinFunc(l.waiting, func(a, b *netJobs) int { // the first one if several are equal
		if q := b.jobs[0].quietly() - a.jobs[0].quietly(); first && q != 0 {
			return q
		}
		return a.running - b.running
	})
	j := next.jobs[0]
	next.running++
	l.running++
	l.quietRunning += j.quietly()
	l.remove(next, 0)
	if len(next.jobs) > 0 { // the network moves to the end of the line
		at := slices.Index(l.waiting, next)
		l.waiting = append(slices.Delete(l.waiting, at, at+1), next)
	}
	return j
}

// done releases the worker of a job. asked is the time for which peers were asked, or 0.
func (l *line) done(j *job, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nets[j.from]
	n.running--
	l.running--
	l.quietRunning -= j.quietly()
	if asked > 0 {
		l.held += (asked - l.held) / 8
	}
	l.release(n)
}

// withdraw removes one job because a turn could not be sent: j, or another job if a worker has
// already taken j on the turn of that job. It returns nil if the line is empty.
func (l *line) withdraw(j *job) *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nets[j.from]; n != nil {
		if at := slices.Index(n.jobs, j); at >= 0 {
			l.remove(n, at)
			return j
		}
	}
	if l.queued == 0 {
		return nil
	}
	n := l.waiting[0]
	other := n.jobs[0]
	l.remove(n, 0)
	return other
}

// flush removes and returns all jobs.
func (l *line) flush() (all []*job) {
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
func (l *line) remove(n *netJobs, at int) {
	l.quietQueued -= n.jobs[at].quietly()
	if at == 0 {
		n.jobs[0] = nil
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
func (l *line) release(n *netJobs) {
	if len(n.jobs) == 0 && n.running == 0 {
		delete(l.nets, n.from)
	}
}
