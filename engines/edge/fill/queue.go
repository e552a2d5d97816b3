package fill

import (
	"cmp"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/edge/config"
)

// queue holds the fills that wait for a worker, in one lane per host. A fill moves from its lane to
// ready when its host may hold one more worker. Slow hosts cannot take all workers or all places.
type queue struct {
	cap     int               // fills that may wait
	workers int               // fills that may run
	shared  func() bool       // reports whether edge.allow names more than one host
	ready   *flow.Queue[*job] // fills for the next free worker
	dropped func(int)         // counts refused fills

	mu      *flow.Mutex
	lanes   map[string]*lane // by host, without empty ones; guarded by mu
	waiting int              // in lanes and in ready; guarded by mu
	granted int              // in ready and running; guarded by mu
	running int              // begun and not ended; guarded by mu
	serial  uint64           // of the last fill that was queued; guarded by mu
	refused uint64           // since the start; guarded by mu
	closed  bool             // no fill is admitted or begun; guarded by mu
}

// lane holds the fills of one host.
type lane struct {
	backlog []*job // not yet in ready, oldest first
	waiting int    // in backlog and in ready
	granted int    // in ready and running
}

func newQueue(c *flow.Catalog, m *obs.Metrics, cfg *config.Config, shared func() bool) *queue {
	q := &queue{
		cap:     cfg.Queues.WorkTX,
		workers: cfg.Fill.Workers,
		shared:  shared,
		lanes:   map[string]*lane{},
		mu:      flow.NewMutex(c, service, flow.RankCounters),
		dropped: m.Counter("queue_dropped_total", service, "queue", "work"),
	}
	c.DeclareHeld(flow.Spec{
		Service:   service,
		Name:      "work_tx",
		Kind:      flow.KindQueue,
		Cap:       q.cap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{TaskName},
		Doc: "fills, in a lane per host; full, or the host holds as many as are free while edge.allow names others: " +
			"429, nothing happened",
	}, func() (int, uint64) { return q.load().Waiting, q.refusals() })
	q.ready = flow.NewQueue[*job](c, flow.Spec{
		Service:   service,
		Name:      "ready_tx",
		Cap:       q.cap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{TaskName},
		Doc:       "fills of work_tx that may begin; never full, because it has room for all of work_tx",
	})
	m.Gauge("queue_depth", service, func() float64 { return float64(q.load().Waiting) }, "queue", "work")
	m.Gauge("queue_capacity", service, func() float64 { return float64(q.cap) }, "queue", "work")
	return q
}

// Load holds the numbers of fills.
type Load struct {
	Waiting int // for a worker, with those in Ready
	Ready   int // for the next free worker
	Running int
	Hosts   int // whose fills these are
}

func (q *queue) load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{Waiting: q.waiting, Ready: q.granted - q.running, Running: q.running, Hosts: len(q.lanes)}
}

func (q *queue) refusals() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// mayHold reports whether a host that holds held of n may hold one more, if all hosts together hold
// taken. A host without competitors may hold all n; otherwise it may hold at most as many as it
// leaves free. So one host alone holds half, two hold a third each, and another host finds room.
func mayHold(shared bool, held, taken, n int) bool {
	return taken < n && (!shared || held < n-taken)
}

// add queues j and never waits. It returns flow.ErrBusy if the queue or the share of the host is
// full, and flow.ErrClosed after close. The caller must cancel the fills in left, which no worker
// will receive.
func (q *queue) add(j *job) (left []*job, err error) {
	granted, err := q.enter(j, q.shared())
	if err != nil {
		q.dropped(1)
	}
	return q.send(granted), err
}

func (q *queue) enter(j *job, shared bool) (granted []*job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[j.Host]
	if l == nil {
		l = &lane{}
	}
	switch {
	case q.closed:
		return nil, flow.ErrClosed
	case !mayHold(shared, l.waiting, q.waiting, q.cap):
		q.refused++
		return nil, flow.ErrBusy
	}
	q.lanes[j.Host] = l
	q.serial++
	j.serial = q.serial
	l.backlog = append(l.backlog, j)
	l.waiting++
	q.waiting++
	return q.grant(shared), nil
}

// grant removes the fills that may begin now from their lanes: first those of the host that holds
// the fewest workers, then the oldest. It is called with mu held.
func (q *queue) grant(shared bool) (granted []*job) {
	for !q.closed {
		var next *lane
		for _, l := range q.lanes {
			if len(l.backlog) > 0 && mayHold(shared, l.granted, q.granted, q.workers) &&
				(next == nil || l.before(next)) {
				next = l
			}
		}
		if next == nil {
			break
		}
		granted = append(granted, next.backlog[0])
		next.backlog = slices.Delete(next.backlog, 0, 1)
		next.granted++
		q.granted++
	}
	return granted
}

// before reports whether l comes before another lane. Both have a backlog.
func (l *lane) before(o *lane) bool {
	return cmp.Or(cmp.Compare(l.granted, o.granted), cmp.Compare(l.backlog[0].serial, o.backlog[0].serial)) < 0
}

// send passes fills to the workers and returns those that found the queue closed.
func (q *queue) send(granted []*job) (left []*job) {
	for _, j := range granted {
		if q.ready.TrySend(j) != nil {
			left = append(left, j)
		}
	}
	return left
}

// begin records that a worker has received a fill from ready. The worker must call end for it.
func (q *queue) begin(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[j.Host].waiting--
	q.waiting--
	q.running++
}

// end records the end of a fill that has begun, and lets others begin. The caller must cancel the
// fills in left, as after add.
func (q *queue) end(j *job) (left []*job) {
	return q.send(q.leave(j, q.shared()))
}

func (q *queue) leave(j *job, shared bool) (granted []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[j.Host]
	l.granted--
	q.granted--
	q.running--
	if l.granted == 0 && l.waiting == 0 {
		delete(q.lanes, j.Host)
	}
	return q.grant(shared)
}

// drop removes a fill that all its callers have left. A fill that is already in ready keeps its
// place until a worker receives it.
func (q *queue) drop(host string, c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[host]
	if l == nil {
		return
	}
	i := slices.IndexFunc(l.backlog, func(j *job) bool { return j.call == c })
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

// close refuses further fills and returns the queued fills that no worker can receive.
func (q *queue) close() (left []*job) {
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
