package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// Catalog knows every channel, task and lock of the process. Safe for concurrent use; no method but CloseFedBy blocks.
type Catalog struct {
	meter Meter
	log   hclog.Logger

	mu       lock
	channels []*channel      // guarded by mu
	tasks    []Task          // guarded by mu
	locks    []Lock          // guarded by mu
	draining map[string]bool // services whose drain gate is shut; guarded by mu
}

// channel is a declared channel and, where flow can close it, who still feeds it.
type channel struct {
	spec  Spec
	fixed int             // how many of spec.Producers were declared with it; tasks with this queue among their Lanes follow, by service
	live  map[string]bool // the feeders that have not returned for good
	close func()          // nil: not closable, or closed already
	gauge Gauge           // nil: only a name
}

// Lock is one declared Mutex rank of a service.
type Lock struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Rank    Rank   `json:"rank"`
	Count   int    `json:"count"` // how many locks share the rank (shards)
}

// NewCatalog returns an empty catalogue whose channels and tasks report to m and log; both may be nil.
func NewCatalog(m Meter, log hclog.Logger) *Catalog {
	if m == nil {
		m = noMeter{}
	}
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Catalog{meter: m, log: log, draining: map[string]bool{}}
}

// Declare enters a channel that is built elsewhere: another name of a cell, a library's hidden queue. It panics if the spec is incomplete
// or its service has a channel of that name, since only a bug can do that.
func (c *Catalog) Declare(s Spec) {
	c.enter(s, nil, nil)
}

// DeclareHeld is Declare for a channel whose state g can read, from any goroutine and without waiting.
func (c *Catalog) DeclareHeld(s Spec, g Gauge) {
	c.enter(s, nil, g)
}

// enter declares s; closeAll, if not nil, is called once when the last of its producers has returned.
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
	if slices.ContainsFunc(c.channels, func(o *channel) bool { return o.spec.Service == s.Service && o.spec.Name == s.Name }) {
		panic(fmt.Sprintf("flow: %s.%s is declared twice", s.Service, s.Name))
	}
	c.channels = append(c.channels, ch)
}

// DeclareTask enters tasks that will be started later, so that the topology can be printed without starting anything.
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

// feedLane adds t to the producers of a declared queue; Check reports one that is not declared. It is called with mu held.
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

// declareStarted enters t unless DeclareTask did so before.
func (c *Catalog) declareStarted(t Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasTask(t.Service, t.Name) {
		c.tasks = append(c.tasks, t)
	}
}

// hasTask is called with mu held.
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

// Check reports every producer and consumer that is neither a declared task, nor HTTP, nor "*", and every lane that is no channel.
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
				errs = append(errs, fmt.Errorf("flow: %s.%s names %q, which is no declared task", s.Service, s.Name, name))
			}
		}
	}
	for _, t := range c.Tasks() {
		for _, lane := range t.Lanes {
			if !lanes[lane] {
				errs = append(errs, fmt.Errorf("flow: task %s.%s names the lane %s, which is no declared channel", t.Service, t.Name, lane))
			}
		}
	}
	return errors.Join(errs...)
}

// CloseFedBy tells that producer, a task of service or HTTP, will send no more, and closes each queue and bus of which it was the last
// live producer. With HTTP it is the drain gate of service: from then on its tasks return nil when they have drained. The supervisor calls
// it as tasks return for good. It blocks only as long as Queue.Close does.
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

// isDraining reports whether the drain gate of service is shut.
func (c *Catalog) isDraining(service string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining[service]
}

// feeder is the key of a producer: "svc.task", or "svc http" for the handlers, since a task may be called "http" too.
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
