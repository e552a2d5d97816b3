package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Catalog holds every channel, task and lock of the process. It is safe for concurrent use. No
// method blocks except CloseFedBy.
type Catalog struct {
	meter Meter
	log   hclog.Logger
	began time.Time // when it was made: the tickers tick whole seconds after it

	mu       lock
	channels []*channel      // guarded by mu
	tasks    []Task          // guarded by mu
	locks    []Lock          // guarded by mu
	draining map[string]bool // services that are draining; guarded by mu
}

// channel is a declared channel. If flow can close it, live holds its remaining producers.
type channel struct {
	spec Spec
	// the number of spec.Producers it was declared with; tasks that have this queue among their
	// Lanes follow, by service
	fixed int
	live  map[string]bool // producers that have not returned for good
	close func()          // nil: not closable, or closed already
	gauge Gauge           // nil: the state cannot be read
}

// Lock is one declared Mutex rank of a service.
type Lock struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Rank    Rank   `json:"rank"`
	Count   int    `json:"count"` // how many locks share the rank (shards)
}

// NewCatalog returns an empty catalogue. Its channels and tasks report to m and log. Both may be
// nil.
func NewCatalog(m Meter, log hclog.Logger) *Catalog {
	if m == nil {
		m = noMeter{}
	}
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Catalog{meter: m, log: log, began: time.Now(), draining: map[string]bool{}}
}

// Declare adds a channel that is built elsewhere, such as an alias of a cell or an internal queue
// of a library. It panics if the spec is incomplete or if the service already has a channel of that
// name.
func (c *Catalog) Declare(s Spec) {
	c.enter(s, nil, nil)
}

// DeclareHeld is like Declare for a channel whose state can be read. g is called from any goroutine
// and must not block.
func (c *Catalog) DeclareHeld(s Spec, g Gauge) {
	c.enter(s, nil, g)
}

// enter adds s. closeAll, if not nil, is called once, after the last producer has returned.
func (c *Catalog) enter(s Spec, closeAll func(), g Gauge) {
	if err := s.check(); err != nil {
		panic(err.Error())
	}
	ch := &channel{spec: s, fixed: len(s.Producers), live: map[string]bool{}, close: closeAll, gauge: g}
	for _, p := range s.Producers {
		ch.live[feeder(s.Service, p)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(
		c.channels,
		func(o *channel) bool { return o.spec.Service == s.Service && o.spec.Name == s.Name },
	) {
		panic(fmt.Sprintf("flow: %s.%s is declared twice", s.Service, s.Name))
	}
	c.channels = append(c.channels, ch)
}

// DeclareTask adds tasks that will be started later, so that the topology can be printed without
// starting anything.
func (c *Catalog) DeclareTask(ts ...Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range ts {
		t = t.normal()
		if t.Service == "" || t.Name == "" {
			panic(fmt.Sprintf("flow: task %q of service %q needs both names", t.Name, t.Service))
		}
		if c.hasTask(t.Service, t.Name) {
			panic(fmt.Sprintf("flow: task %s.%s is declared twice", t.Service, t.Name))
		}
		for _, lane := range t.Lanes {
			c.feedLane(lane, t)
		}
		c.tasks = append(c.tasks, t)
	}
}

// feedLane adds t to the producers of a declared queue. Check reports a queue that is not declared.
// Called with mu held.
func (c *Catalog) feedLane(lane string, t Task) {
	i := slices.IndexFunc(c.channels, func(ch *channel) bool { return qualify(ch.spec.Service, ch.spec.Name) == lane })
	if i < 0 {
		return
	}
	ch, name := c.channels[i], qualify(t.Service, t.Name)
	at := len(ch.spec.Producers)
	for at > ch.fixed && !strings.HasPrefix(ch.spec.Producers[at-1], t.Service+".") && ch.spec.Producers[at-1] > name {
		at--
	}
	ch.spec.Producers = slices.Insert(slices.Clip(slices.Clone(ch.spec.Producers)), at, name)
	ch.live[name] = true
}

// declareStarted adds t unless DeclareTask has added it.
func (c *Catalog) declareStarted(t Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasTask(t.Service, t.Name) {
		c.tasks = append(c.tasks, t)
	}
}

// hasTask reports whether the task is declared. Called with mu held.
func (c *Catalog) hasTask(service, name string) bool {
	return slices.ContainsFunc(c.tasks, func(o Task) bool { return o.Service == service && o.Name == name })
}

func (c *Catalog) declareLock(service string, r Rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.locks {
		if c.locks[i].Service == service && c.locks[i].Rank == r {
			c.locks[i].Count++
			return
		}
	}
	c.locks = append(c.locks, Lock{Service: service, Name: r.String(), Rank: r, Count: 1})
}

// Specs returns every declared channel, sorted by service and name.
func (c *Catalog) Specs() []Spec {
	c.mu.Lock()
	specs := make([]Spec, 0, len(c.channels))
	for _, ch := range c.channels {
		specs = append(specs, ch.spec)
	}
	c.mu.Unlock()
	slices.SortFunc(specs, func(a, b Spec) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name))
	})
	return specs
}

// Tasks returns every declared task, sorted by service and name.
func (c *Catalog) Tasks() []Task {
	c.mu.Lock()
	tasks := slices.Clone(c.tasks)
	c.mu.Unlock()
	slices.SortFunc(tasks, func(a, b Task) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name))
	})
	return tasks
}

// ranks returns every declared lock rank, sorted by service and rank, outermost first.
func (c *Catalog) ranks() []Lock {
	c.mu.Lock()
	locks := slices.Clone(c.locks)
	c.mu.Unlock()
	slices.SortFunc(locks, func(a, b Lock) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), cmp.Compare(a.Rank, b.Rank))
	})
	return locks
}

// Check returns an error for each producer and consumer that is not a declared task, HTTP or "*",
// and for each lane that is not a declared channel.
func (c *Catalog) Check() error {
	known := map[string]bool{}
	for _, t := range c.Tasks() {
		known[t.Service+"."+t.Name] = true
	}
	var errs []error
	lanes := map[string]bool{}
	for _, s := range c.Specs() {
		lanes[qualify(s.Service, s.Name)] = true
		for _, name := range slices.Concat(s.Producers, s.Consumers) {
			if name != HTTP && name != everyTask && !known[qualify(s.Service, name)] {
				errs = append(
					errs,
					fmt.Errorf("flow: %s.%s names %q, which is no declared task", s.Service, s.Name, name),
				)
			}
		}
	}
	for _, t := range c.Tasks() {
		for _, lane := range t.Lanes {
			if !lanes[lane] {
				errs = append(
					errs,
					fmt.Errorf("flow: task %s.%s names the lane %s, which is no declared channel", t.Service, t.Name,
						lane),
				)
			}
		}
	}
	return errors.Join(errs...)
}

// CloseFedBy records that producer, a task of service or HTTP, sends no more, and closes each queue
// and bus of which it was the last producer. With HTTP it starts the drain of service: from then on
// a nil return of its tasks means that they have drained. The supervisor calls it when a task has
// returned for good. It blocks only as long as Queue.Close does.
func (c *Catalog) CloseFedBy(service, producer string) {
	if producer == HTTP {
		c.mu.Lock()
		c.draining[service] = true
		c.mu.Unlock()
	}
	c.feederGone(feeder(service, producer))
}

func (c *Catalog) feederGone(name string) {
	var closing []func()
	c.mu.Lock()
	for _, ch := range c.channels {
		if ch.close == nil || !ch.live[name] {
			continue
		}
		delete(ch.live, name)
		if len(ch.live) == 0 {
			closing = append(closing, ch.close)
			ch.close = nil
		}
	}
	c.mu.Unlock()
	for _, f := range closing {
		f()
	}
}

// isDraining reports whether service is draining.
func (c *Catalog) isDraining(service string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining[service]
}

// feeder returns the key of a producer: "svc.task", or "svc http" for the handlers, because a task
// may also be named "http".
func feeder(service, producer string) string {
	if producer == HTTP {
		return service + " " + HTTP
	}
	return qualify(service, producer)
}

// qualify returns name as "svc.task".
func qualify(service, name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return service + "." + name
}

// ChannelState is the state of a channel at one moment.
type ChannelState struct {
	Spec
	Len     int    // queued items; of a broadcast, the lag of its slowest subscriber
	Dropped uint64 // items refused, evicted, discarded or overrun since the start
}

// Gauge returns the state of a channel that flow does not hold.
type Gauge func() (length int, dropped uint64)

// Channels returns every channel whose state is known, sorted by service and name: those that flow
// holds, and those declared with a Gauge. Aliases of a cell and internal queues of libraries are
// listed by Specs only.
func (c *Catalog) Channels() []ChannelState {
	c.mu.Lock()
	known := slices.DeleteFunc(slices.Clone(c.channels), func(ch *channel) bool { return ch.gauge == nil })
	c.mu.Unlock()
	out := make([]ChannelState, 0, len(known))
	for _, ch := range known {
		n, dropped := ch.gauge() // outside the lock: a bus takes its own lock
		out = append(out, ChannelState{Spec: ch.spec, Len: n, Dropped: dropped})
	}
	slices.SortFunc(out, func(a, b ChannelState) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name))
	})
	return out
}

// holdsOne is the Gauge of a cell, holdsNone that of a ticker.
func holdsOne() (int, uint64) { return 1, 0 }

func holdsNone() (int, uint64) { return 0, 0 }

// tally is a counter that is read by Channels and exported to a Meter.
type tally struct {
	total atomic.Uint64
	meter func(n int)
}

func (t *tally) add(n int) {
	t.total.Add(uint64(n))
	t.meter(n)
}
