package index

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"ronbox/appliance/flow"
)

// shareOf is the part of the workers and of the places in the queue that one network keeps while another waits: a
// quarter.
const shareOf = 4

// turn is an item of work_tx: the right to take one job from the line.
type turn struct{}

// line holds the jobs of work_tx by the network that they are for, so that one network cannot keep the others out.
// There is a job in it for every turn in the queue and for every turn that is about to be sent.
//
// A worker takes the oldest job of the network that has the fewest workers, so a network beyond its quarter yields to
// every network that waits with less. A network that has a quarter of the places gets no more while another waits.
// In a full line the newest job of the network with the most jobs gives way to a network that has fewer.
type line struct {
	workers int

	mu      sync.Mutex // a leaf
	nets    map[netip.Addr]*netJobs
	waiting []*netJobs    // that have jobs, the one served longest ago first; guarded by mu, as is all below
	queued  int           // jobs in all
	running int           // jobs that workers have
	held    time.Duration // how long a lookup keeps a worker, a moving average
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

// push adds j, unless it could not be begun within room, or its network has its share of the places and another
// waits: flow.ErrBusy. The job that gave way, nil for none, leaves its turn to j.
func (l *line) push(j *job, room time.Duration) (gaveWay *job, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nets[j.from]
	if n == nil {
		n = &netJobs{from: j.from}
	}
	alone := l.queued == len(n.jobs)
	if !alone && len(n.jobs) >= workCap/shareOf || l.wait(n) > room {
		return nil, flow.ErrBusy
	}
	if l.queued == workCap {
		most := slices.MaxFunc(l.waiting, func(a, b *netJobs) int { return len(a.jobs) - len(b.jobs) })
		if len(most.jobs) <= len(n.jobs)+1 {
			return nil, flow.ErrBusy
		}
		gaveWay = most.jobs[len(most.jobs)-1]
		l.remove(most, len(most.jobs)-1)
	}
	l.nets[j.from] = n
	if len(n.jobs) == 0 {
		l.waiting = append(l.waiting, n)
	}
	n.jobs = append(n.jobs, j)
	l.queued++
	return gaveWay, nil
}

// wait estimates how long a new job of n waits for a worker. Called with mu held.
func (l *line) wait(n *netJobs) time.Duration {
	ahead := 0
	for _, one := range l.waiting {
		ahead += min(len(one.jobs), len(n.jobs)+1)
	}
	free := l.workers - l.running
	return l.held * time.Duration(max(0, ahead+1-free)) / time.Duration(l.workers)
}

// size returns the number of jobs in the line, and of those that workers have.
func (l *line) size() (queued, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued, l.running
}

// take removes the job that is next, for a worker. It returns nil if there is none.
func (l *line) take() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == 0 {
		return nil
	}
	next := slices.MinFunc(l.waiting, func(a, b *netJobs) int { return a.running - b.running }) // the first of equals
	j := next.jobs[0]
	next.running++
	l.running++
	l.remove(next, 0)
	if len(next.jobs) > 0 { // its turn comes again after the others
		at := slices.Index(l.waiting, next)
		l.waiting = append(slices.Delete(l.waiting, at, at+1), next)
	}
	return j
}

// done gives the worker of a job back. asked is how long peers were asked; 0 if they were not.
func (l *line) done(j *job, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nets[j.from]
	n.running--
	l.running--
	if asked > 0 {
		l.held += (asked - l.held) / 8
	}
	l.release(n)
}

// withdraw removes one job whose turn could not be sent: j or, if a worker has taken that on the turn of another
// job, the other. It returns nil if the line is empty.
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

// flush removes all jobs.
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

// remove takes the job at a place of n out. Called with mu held.
func (l *line) remove(n *netJobs, at int) {
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

// release forgets a network that has nothing here. Called with mu held.
func (l *line) release(n *netJobs) {
	if len(n.jobs) == 0 && n.running == 0 {
		delete(l.nets, n.from)
	}
}
