package edge

import (
	"slices"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// fillQueue holds the fills that wait for a worker, in one lane per host. A fill moves from its lane to ready when its host has a worker to
// spare, so a slow host never holds more than its share of the workers, and never more than its share of the queue.
type fillQueue struct {
	cap     int                   // fills that may wait
	workers int                   // fills at one time
	shared  func() bool           // reports whether more than one host may be filled from
	ready   *flow.Queue[*fillJob] // fills that the next free worker begins
	dropped func(int)             // counts fills that found no room

	mu      *flow.Mutex
	lanes   map[string]*lane // by host, without empty ones; guarded by mu
	waiting int              // in lanes and in ready; guarded by mu
	running int              // begun and not ended; guarded by mu
	refused uint64           // since the start; guarded by mu
	closed  bool             // nothing is admitted or begun any more; guarded by mu
}

// lane is the fills of one host.
type lane struct {
	backlog []*fillJob // not in ready yet, oldest first
	waiting int        // in backlog and in ready
	granted int        // in ready and running
}

func newFillQueue(c *flow.Catalog, m *obs.Metrics, cfg *Config, shared func() bool) *fillQueue {
	q := &fillQueue{
		cap: cfg.Queues.WorkTX, workers: cfg.Fill.Workers, shared: shared, lanes: map[string]*lane{},
		mu: flow.NewMutex(c, service, flow.RankCounters), dropped: m.Counter("queue_dropped_total", service, "queue", "work"),
	}
	c.DeclareHeld(flow.Spec{
		Service: service, Name: "work_tx", Kind: flow.KindQueue, Cap: q.cap, Policy: flow.RejectNew, Producers: []string{flow.HTTP},
		Consumers: []string{taskWorker}, Doc: "fills, in a lane per host; full, or half of it one host's while edge.allow names more: 429, nothing happened",
	}, func() (int, uint64) { n, _ := q.counts(); return n, q.refusals() })
	q.ready = flow.NewQueue[*fillJob](c, flow.Spec{
		Service: service, Name: "ready_tx", Cap: q.cap, Policy: flow.RejectNew, Producers: []string{flow.HTTP}, Consumers: []string{taskWorker},
		Doc: "fills of work_tx whose host has a worker to spare; holds all of work_tx, so it is never full",
	})
	m.Gauge("queue_depth", service, func() float64 { n, _ := q.counts(); return float64(n) }, "queue", "work")
	m.Gauge("queue_capacity", service, func() float64 { return float64(q.cap) }, "queue", "work")
	return q
}

// counts returns how many fills wait and how many run.
func (q *fillQueue) counts() (waiting, running int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, q.running
}

func (q *fillQueue) refusals() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// share returns how much of n one host may hold: all of it if there is no other host, else half, rounded up.
func (q *fillQueue) share(n int) int {
	if q.shared() {
		return (n + 1) / 2
	}
	return n
}

// add queues j. It returns flow.ErrBusy if the queue or the share of the host is full, and flow.ErrClosed after close. It never waits. The
// caller must cancel the fills in left: the workers are gone.
func (q *fillQueue) add(j *fillJob) (left []*fillJob, err error) {
	mostWorkers, mostPlaces := q.share(q.workers), q.share(q.cap)
	granted, err := q.enter(j, mostWorkers, mostPlaces)
	if err != nil {
		q.dropped(1)
	}
	return q.send(granted), err
}

func (q *fillQueue) enter(j *fillJob, mostWorkers, mostPlaces int) (granted []*fillJob, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[j.host]
	switch {
	case q.closed:
		return nil, flow.ErrClosed
	case q.waiting >= q.cap, l != nil && l.waiting >= mostPlaces:
		q.refused++
		return nil, flow.ErrBusy
	case l == nil:
		l = &lane{}
		q.lanes[j.host] = l
	}
	l.backlog = append(l.backlog, j)
	l.waiting++
	q.waiting++
	return l.grant(mostWorkers), nil
}

// grant takes from the backlog what may be begun while the host holds at most so many workers.
func (l *lane) grant(most int) []*fillJob {
	n := min(len(l.backlog), max(0, most-l.granted))
	out := slices.Clone(l.backlog[:n])
	l.backlog = slices.Delete(l.backlog, 0, n)
	l.granted += n
	return out
}

// send passes fills on to the workers and returns those that met a closed queue.
func (q *fillQueue) send(granted []*fillJob) (left []*fillJob) {
	for _, j := range granted {
		if q.ready.TrySend(j) != nil {
			left = append(left, j)
		}
	}
	return left
}

// begin books a fill that a worker has received from ready. The worker must call end for it.
func (q *fillQueue) begin(j *fillJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[j.host].waiting--
	q.waiting--
	q.running++
}

// end books the end of a fill that has begun, and lets the next one of its host begin. The caller must cancel the fills in left, as after add.
func (q *fillQueue) end(j *fillJob) (left []*fillJob) {
	most := q.share(q.workers)
	return q.send(q.leave(j, most))
}

func (q *fillQueue) leave(j *fillJob, most int) (granted []*fillJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[j.host]
	l.granted--
	q.running--
	if !q.closed {
		granted = l.grant(most)
	}
	if l.granted == 0 && l.waiting == 0 {
		delete(q.lanes, j.host)
	}
	return granted
}

// drop gives up the place of a fill that all its callers have left. One that is in ready already keeps its place until a worker receives it.
func (q *fillQueue) drop(host string, c *fillCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[host]
	if l == nil {
		return
	}
	i := slices.IndexFunc(l.backlog, func(j *fillJob) bool { return j.call == c })
	if i < 0 {
		return
	}
	l.backlog = slices.Delete(l.backlog, i, i+1)
	l.waiting--
	q.waiting--
	if l.granted == 0 && l.waiting == 0 {
		delete(q.lanes, host)
	}
}

// close refuses further fills and returns those that are in no worker's reach any more.
func (q *fillQueue) close() (left []*fillJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, l := range q.lanes {
		left = append(left, l.backlog...)
		l.waiting -= len(l.backlog)
		q.waiting -= len(l.backlog)
		l.backlog = nil
	}
	return left
}
