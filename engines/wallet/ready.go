package wallet

import "ronbox/appliance/flow"

// ready are the jobs that waited for a nonce and need not any more. There are at most as many as were let in.
type ready struct {
	some chan struct{} // holds a token when there may be jobs

	mu   *flow.Mutex
	jobs []*job // guarded by mu
}

func newReady(c *flow.Catalog) *ready {
	return &ready{some: make(chan struct{}, 1), mu: flow.NewMutex(c, service, flow.RankCounters)}
}

// put adds jobs and wakes a worker.
func (r *ready) put(jobs []*job) {
	r.mu.Lock()
	r.jobs = append(r.jobs, jobs...)
	r.mu.Unlock()
	r.wake()
}

func (r *ready) wake() {
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// take gives up to most jobs, and wakes another worker if some are left.
func (r *ready) take(most int) []*job {
	r.mu.Lock()
	n := min(most, len(r.jobs))
	jobs := r.jobs[:n:n]
	r.jobs = r.jobs[n:]
	left := len(r.jobs) > 0
	if !left {
		r.jobs = nil
	}
	r.mu.Unlock()
	if left {
		r.wake()
	}
	return jobs
}
