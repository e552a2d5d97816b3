package server

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

// copied records which engines have loaded their copies, and at which entry of the log.
type copied struct {
	tick  *flow.Ticker
	ready atomic.Pointer[[]string] // services that answer
	index uint64                   // of the last entry in the file then; owned by Run, as are the next two
	done  bool                     // every engine has loaded it
	fault string                   // as logged last
}

// declareCopies declares the tick of a member.
func (n *Node) declareCopies() {
	n.copied.tick = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "copies_tick", Consumers: []string{"supervisor"},
		Doc: "looks whether the file of a member that does not lead has changed",
	}, copiesEvery)
}

// copies reports whether a service answers reads from the copy of this member. That goes on while
// the engines recover.
func (n *Node) copies(service string) bool {
	ready := n.copied.ready.Load()
	return ready != nil && slices.Contains(*ready, service)
}

// firstCopies is loadCopies within copiesWithin.
func (n *Node) firstCopies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copiesWithin)
	defer cancel()
	n.loadCopies(ctx)
}

// loadCopies lets the engines load their copies if the file has changed since the last time. It
// returns early if the lifecycle goes on meanwhile. A failure is logged, and tried again.
func (n *Node) loadCopies(ctx context.Context) {
	index := n.store.Applied().Index
	if n.copied.done && n.copied.index == index {
		return
	}
	n.copied.index = index
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan struct{})
	_ = flow.Fan(ctx, 2, func(ctx context.Context, leg int) error { // no leg fails
		if leg == 0 {
			defer close(loaded)
			n.copied.done = n.standAll(ctx)
			return nil
		}
		n.untilElected(loaded)
		cancel()
		return nil
	})
}

// standAll calls Stand of the engines that have it, and reports whether all have succeeded. One
// that fails answers no reads.
func (n *Node) standAll(ctx context.Context) (all bool) {
	all = true
	for _, r := range n.services.Engines() {
		e, ok := r.Engine.(stander)
		if !ok {
			continue
		}
		err := e.Stand(ctx)
		if err != nil && ctx.Err() != nil {
			return false // what was loaded before stands
		}
		n.copied.set(r.Name, err == nil)
		all = all && err == nil
		if err != nil && err.Error() != n.copied.fault {
			n.copied.fault = err.Error()
			n.log.Warn("copy_not_loaded", "name", r.Name, "reason", err.Error(), "next", "tried again")
		}
	}
	return all
}

// set records whether a service answers.
func (c *copied) set(service string, answers bool) {
	var ready []string
	if was := c.ready.Load(); was != nil {
		ready = slices.DeleteFunc(slices.Clone(*was), func(name string) bool { return name == service })
	}
	if answers {
		ready = append(ready, service)
	}
	c.ready.Store(&ready)
}

// untilElected waits for loaded, or until waitElected has an event.
func (n *Node) untilElected(loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-n.elected():
	case <-n.deposed():
	case <-n.store.Failed():
	case <-n.died.asked:
	case <-n.abort.asked:
	case <-n.drain.asked:
	}
}
