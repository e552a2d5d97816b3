package wiring

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
)

// stander is an engine that can answer reads on a member that does not lead. Stand loads what these
// reads need from the file, and writes nothing. It is called by one goroutine, again after the file
// has changed, and never after Recover.
type stander interface {
	Stand(ctx context.Context) error
}

const (
	// copiesEvery is the time after which a changed file is loaded again.
	copiesEvery = 250 * time.Millisecond
	// copiesWithin bounds the wait of a member that begins, so that its clients get answers at
	// once. Many packs on a slow disk are opened later.
	copiesWithin = 500 * time.Millisecond
)

// Copies lets the engines of a member that does not lead load their copies. It records which have,
// and at which entry of the log.
type Copies struct {
	Tick *flow.Ticker // Load is due

	set     *Set
	elected func(loaded <-chan struct{})
	ready   atomic.Pointer[[]string] // services that answer
	index   uint64                   // of the last entry in the file then; owned by Load, as are the next two
	done    bool                     // every engine has loaded it
	fault   string                   // as logged last
}

// NewCopies returns the copies of a member. elected returns when the channel is closed, or when the
// member is to do something else than to stand by.
func (n *Set) NewCopies(elected func(loaded <-chan struct{})) *Copies {
	return &Copies{set: n, elected: elected, Tick: flow.Every(n.Catalog, flow.Spec{
		Service: nodeName, Name: "copies_tick", Consumers: []string{"supervisor"},
		Doc: "looks whether the file of a member that does not lead has changed",
	}, copiesEvery)}
}

// Has reports whether a service answers reads from the copy of this member. That goes on while the
// engines recover.
func (c *Copies) Has(service string) bool {
	ready := c.ready.Load()
	return ready != nil && slices.Contains(*ready, service)
}

// LoadFirst is Load within copiesWithin.
func (c *Copies) LoadFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copiesWithin)
	defer cancel()
	c.Load(ctx)
}

// Load lets the engines load their copies if the file has changed since the last time. It returns
// early if the lifecycle goes on meanwhile. A failure is logged, and tried again.
func (c *Copies) Load(ctx context.Context) {
	index := c.set.Store.Applied().Index
	if c.done && c.index == index {
		return
	}
	c.index = index
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan struct{})
	_ = flow.Fan(ctx, 2, func(ctx context.Context, leg int) error { // no leg fails
		if leg == 0 {
			defer close(loaded)
			c.done = c.standAll(ctx)
			return nil
		}
		c.elected(loaded)
		cancel()
		return nil
	})
}

// standAll calls Stand of the engines that have it, and reports whether all have succeeded. One
// that fails answers no reads.
func (c *Copies) standAll(ctx context.Context) (all bool) {
	all = true
	for _, r := range c.set.engines {
		e, ok := r.Engine.(stander)
		if !ok {
			continue
		}
		err := e.Stand(ctx)
		if err != nil && ctx.Err() != nil {
			return false // what was loaded before stands
		}
		c.record(r.Name, err == nil)
		all = all && err == nil
		if err != nil && err.Error() != c.fault {
			c.fault = err.Error()
			c.set.log.Warn("copy_not_loaded", "name", r.Name, "reason", err.Error(), "next", "tried again")
		}
	}
	return all
}

// record records whether a service answers.
func (c *Copies) record(service string, answers bool) {
	var ready []string
	if was := c.ready.Load(); was != nil {
		ready = slices.DeleteFunc(slices.Clone(*was), func(name string) bool { return name == service })
	}
	if answers {
		ready = append(ready, service)
	}
	c.ready.Store(&ready)
}
