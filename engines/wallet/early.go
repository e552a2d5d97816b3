package wallet

import (
	"slices"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// A job whose nonce is ahead, with nobody in sight who has the one before it, is early: its client sends the nonces of an account over several
// connections, and they overtake each other. It lies in its slot, not noted, so that nobody waits for it and it waits for nobody by name; it
// is noted anew when those before it are done, when a burst gets so far that it continues it, or when its time is over. The ledger judges it
// then as it would have at first.

// patient says whether j waits for nonces that nobody in sight has, and not for too long already. The time is read only by a job that has
// found itself to be early.
func (j *job) patient(set *settings, now time.Time) bool {
	if j.op.Code == record.OpBatch || len(j.needs) != 1 || set.limits.Monotonic || set.NonceWait == 0 {
		return false
	}
	if j.until.IsZero() {
		j.until = now.Add(min(set.NonceWait.D(), j.deadline.Sub(now)/2-watchEvery)) // in time for the ledger to say what is missing
	}
	return now.Before(j.until)
}

// lay puts j aside as early, if it may wait and there is room. It returns those that waited for j: it goes before them no more. Called with the
// shard's lock held.
func (n *nonces) lay(s *slot, j *job, set *settings) (woken []*job, ok bool) {
	lo := j.needs[0].lo
	if n.closed.Load() || lo-s.expect > uint64(set.NoncePipeline) || s.full(set) || !j.patient(set, time.Now()) {
		return nil, false
	}
	if n.early.Add(1) > int64(set.Limits.MaxInflight/2) { // who waits keeps others out: half of the places is for those who do not
		n.early.Add(-1)
		return nil, false
	}
	s.forget(j)
	at, _ := slices.BinarySearchFunc(s.early, lo, func(o *job, lo uint64) int {
		if o.needs[0].lo <= lo {
			return -1
		}
		return 1
	})
	s.early = slices.Insert(s.early, at, j)
	woken, s.waiting = s.waiting, nil
	return woken, true
}

// full says whether as many wait in s as may.
func (s *slot) full(set *settings) bool { return len(s.waiting)+len(s.early) >= set.NoncePipeline }

// putOff has j wait although the ledger has refused it, because its nonce is ahead of next. It reports false if it is to be answered, and who
// is to look for his place again: j itself, if those before it have been done since.
func (n *nonces) putOff(j *job, next uint64, set *settings) (woken []*job, ok bool) {
	if next == 0 || len(j.needs) != 1 {
		return nil, false
	}
	s := j.needs[0].slot
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.expect = max(s.expect, next); j.needs[0].lo <= s.expect {
		if !time.Now().Before(j.deadline) { // lest a ledger that is wrong be asked for ever
			return nil, false
		}
		return []*job{j}, true
	}
	return n.lay(s, j, set)
}

// recall notes early jobs of s anew, as if they came now, and returns them. Called with the shard's lock held.
func (n *nonces) recall(s *slot, which func(*job) bool) (jobs []*job) {
	if len(s.early) == 0 {
		return nil
	}
	s.early = slices.DeleteFunc(s.early, func(j *job) bool {
		if !which(j) {
			return false
		}
		j.ticket = n.ticket.Add(1)
		s.noted = append(s.noted, span{j.needs[0].lo, j.needs[0].hi, j.ticket})
		jobs = append(jobs, j)
		return true
	})
	n.early.Add(-int64(len(jobs)))
	return jobs
}

// learn notes what the outcome of j says of the nonce that the ledger would take next, and recalls those that are not ahead of it. No outcome
// says nothing, and a batch that it may be any. Called with the shard's lock held.
func (n *nonces) learn(s *slot, j *job, out *ledger.Outcome) []*job {
	switch {
	case out == nil:
		s.expect = 0
		return nil
	case j.op.Code == record.OpBatch:
		s.expect = 0
		return n.recall(s, func(*job) bool { return true })
	case out.Reject == nil:
		s.expect = max(s.expect, j.needs[0].hi)
	case out.Reject.Code == record.NonceGap, out.Reject.Code == record.NonceReused:
		s.expect = max(s.expect, out.Reject.Expected)
	}
	return n.recall(s, func(o *job) bool { return o.needs[0].lo <= s.expect })
}

// after recalls the early job that continues what b has reserved for j, nil if there is none.
func (n *nonces) after(b *burst, j *job) *job {
	if n.early.Load() == 0 {
		return nil
	}
	for i := range j.needs {
		if next := n.continues(b, j.needs[i].slot); next != nil {
			return next
		}
	}
	return nil
}

func (n *nonces) continues(b *burst, s *slot) *job {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.owner != b {
		return nil
	}
	var found *job
	n.recall(s, func(j *job) bool {
		if found != nil || j.needs[0].lo != s.next {
			return false
		}
		found = j
		return true
	})
	return found
}

// overdue recalls the early jobs that wait no more.
func (n *nonces) overdue(set *settings, now time.Time) []*job {
	return n.recallAll(func(j *job) bool { return !j.patient(set, now) })
}

// close recalls the early jobs and lets nobody be put aside from now on: no more jobs come that anybody could wait for.
func (n *nonces) close() []*job {
	n.closed.Store(true)
	return n.recallAll(func(*job) bool { return true })
}

func (n *nonces) recallAll(which func(*job) bool) (jobs []*job) {
	if n.early.Load() == 0 {
		return nil
	}
	for i := range n.shards {
		h := &n.shards[i]
		h.mu.Lock()
		for _, s := range h.slots {
			jobs = append(jobs, n.recall(s, which)...) //lockwait: which is this file's own, looks at the job and the clock, and waits for nothing
		}
		h.mu.Unlock()
	}
	return jobs
}
