package flow

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ChannelState is a channel at one moment.
type ChannelState struct {
	Spec
	Len     int    // items in it; of a broadcast, what its slowest subscriber has still to read
	Dropped uint64 // items refused, evicted, discarded or overrun since the start
}

// Gauge reads the state of a channel that is held elsewhere.
type Gauge func() (length int, dropped uint64)

// Channels reads every channel whose state is known, sorted by service and name: what flow holds, and what was declared with a Gauge. Other
// names of a cell and hidden queues of libraries are only in Specs.
func (c *Catalog) Channels() []ChannelState {
	c.mu.Lock()
	known := slices.DeleteFunc(slices.Clone(c.channels), func(ch *channel) bool { return ch.gauge == nil })
	c.mu.Unlock()
	out := make([]ChannelState, 0, len(known))
	for _, ch := range known {
		n, dropped := ch.gauge() // outside the lock: a bus takes its own
		out = append(out, ChannelState{Spec: ch.spec, Len: n, Dropped: dropped})
	}
	slices.SortFunc(out, func(a, b ChannelState) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name))
	})
	return out
}

// holdsOne is the state of a cell, holdsNone that of a ticker.
func holdsOne() (int, uint64) { return 1, 0 }

func holdsNone() (int, uint64) { return 0, 0 }

// TaskState is an instance of a started task at one moment.
type TaskState struct {
	Service   string
	Task      string
	Index     int // of the instance, from 0
	State     LifeState
	Since     time.Time // when that state began
	Restarts  int       // within the last minute
	LastError error     // how the last life that failed ended; nil if none did
}

// LifeState says what an instance is doing.
type LifeState string

// The states of an instance.
const (
	LifeRunning LifeState = "running"
	LifeBackoff LifeState = "backoff" // waits out a restart delay
	LifeDone    LifeState = "done"    // will not run again
)

// lifeView is what an instance shows of itself. It is replaced, never changed.
type lifeView struct {
	state    LifeState
	since    time.Time
	restarts []time.Time
	last     error
}

// show publishes a new state of the instance. Only its run does so.
func (in *instance) show(s LifeState, err error) {
	next := &lifeView{state: s, since: time.Now(), restarts: slices.Clone(in.restarts.times), last: err}
	if old := in.view.Load(); err == nil && old != nil {
		next.last = old.last
	}
	in.view.Store(next)
}

// look reads the instance.
func (in *instance) look(now time.Time) TaskState {
	v := in.view.Load()
	log := restartLog{times: v.restarts}
	return TaskState{
		Service: in.task.Service, Task: in.task.Name, Index: in.index, State: v.state, Since: v.since,
		Restarts: log.recent(now), LastError: v.last,
	}
}

// Tasks returns every instance that was started, sorted by service, task and index.
func (s *Supervisor) Tasks() []TaskState {
	now := time.Now()
	var out []TaskState
	s.mu.Lock()
	for _, b := range s.branches {
		for _, t := range b.tasks {
			for _, in := range t.instances {
				out = append(out, in.look(now))
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b TaskState) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Task, b.Task), a.Index-b.Index)
	})
	return out
}

// tally counts for a meter and for Channels.
type tally struct {
	total atomic.Uint64
	meter func(n int)
}

func (t *tally) add(n int) {
	t.total.Add(uint64(n))
	t.meter(n)
}
