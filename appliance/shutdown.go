package appliance

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/tokens"
	"ronbox/httpapi"
	"ronbox/store"
)

// bounds are those of the parts of a stop.
type bounds struct {
	store  time.Duration // the committer empties its lanes
	server time.Duration // answers that are being written
	spans  time.Duration // spans on their way to the collector
	lines  time.Duration // log lines
}

// stopWithin bounds the stop of every node. With the graces of the aborted and the cut in each part, its parts add up to 4 s after the
// drain.
var stopWithin = bounds{
	store: 1500 * time.Millisecond, server: 750 * time.Millisecond, spans: 300 * time.Millisecond, lines: 200 * time.Millisecond,
}

const (
	dieWithin = 300 * time.Millisecond // everything, once nothing can be trusted

	// afterDrain is the time that a service manager is asked for beside the drain: twice that of the parts above.
	afterDrain = 8 * time.Second

	// lameDuck is the least time between the gate and the closing of the sockets: a client that keeps its connection
	// busy hears 503 draining on it, instead of finding it closed under a request.
	lameDuck = 200 * time.Millisecond
)

// drainServices refuses new work and lets accepted work finish.
func (n *Node) drainServices(ctx context.Context) event {
	n.log.Info("draining", "reason", n.drain.reason)
	n.manager.stopping(n.drain.reason, n.conf().Node.Predrain.D()+drainDeadline(n.conf())+afterDrain)
	if e, cut := n.predrain(); cut {
		return e
	}
	n.closeIntake()
	linger := time.NewTimer(lameDuck)
	defer linger.Stop()
	if e := n.join(ctx, drainDeadline(n.conf())); e.kind != evDrained {
		return e
	}
	if n.server.Conns() == 0 {
		return event{kind: evDrained} // nobody is left to hear
	}
	if e, cut := until(n, linger.C); cut {
		return e
	}
	return event{kind: evDrained}
}

var errLeaving = errors.New("the node is about to stop")

// predrain goes on serving, unready, so that a balancer can turn elsewhere.
func (n *Node) predrain() (cause event, cut bool) {
	if n.conf().Node.Predrain == 0 {
		return event{}, false
	}
	n.board.Set(ownService, "predrain", errLeaving)
	over := time.NewTimer(n.conf().Node.Predrain.D())
	defer over.Stop()
	return until(n, over.C)
}

// until waits for over, cut short by an abort or a fault.
func until[T any](n *Node, over <-chan T) (cause event, cut bool) {
	select {
	case <-over:
		return event{}, false
	case <-n.abort.asked:
		return event{kind: evAbort}, true
	case <-n.store.Failed():
		return n.fatal(), true
	case <-n.died.asked:
		return n.fatal(), true
	}
}

// closeIntake shuts the gate for requests that would queue or commit, ends background work, and closes the queues that handlers feed.
func (n *Node) closeIntake() {
	n.server.SetGate(httpapi.GateDraining)
	n.sup.CancelBackground()
	n.closeIntakes()
}

// noteDrain leaves a row on the audit chain. A store that cannot take it does not hold up the stop.
func (n *Node) noteDrain(ctx context.Context) {
	e := tokens.AuditEvent("node.drain", n.drain.by, n.drain.corrID, nil)
	e.Reason = n.drain.reason
	n.note(ctx, e)
}

// join waits for the engines' tasks and the row that says so, cut short by an abort or a fault.
func (n *Node) join(ctx context.Context, within time.Duration) event {
	ctx, leave := context.WithTimeout(ctx, within)
	defer leave()
	done, cause, cut, aborted := make(chan struct{}), event{}, false, 0
	wait := func(ctx context.Context, leg int) error {
		if leg == 0 {
			n.noteDrain(ctx)
		} else {
			aborted = n.drainEngines(ctx)
		}
		return nil
	}
	_ = flow.Fan(ctx, 2, func(ctx context.Context, leg int) error { // no leg fails
		if leg == 0 {
			defer close(done)
			return flow.Fan(ctx, 2, wait)
		}
		if cause, cut = until(n, done); cut {
			leave()
			n.abortEngines(ctx, n.grace())
		}
		return nil
	})
	switch {
	case cut:
		return cause
	case aborted > 0:
		return event{kind: evOverdue}
	}
	return event{kind: evDrained}
}

// abortServices cancels the tasks of every engine.
func (n *Node) abortServices(ctx context.Context) event {
	n.manager.stopping("abort", afterDrain)
	n.closeIntake()
	n.abortEngines(ctx, n.grace())
	return event{kind: evDrained}
}

// stop closes lanes, sockets and file, in this order. It is also the end of a boot that failed half way.
func (n *Node) stop(ctx context.Context) event {
	n.server.SetGate(httpapi.GateClosed)
	n.sup.CancelBackground()
	n.refuseReloads() // those that no reloader was there for: the boot failed, or it was about to be started again
	n.endEngines(ctx)
	n.store.CloseLanes()
	straggler := n.sup.Drain("store", n.within.store, n.grace()) > 0
	shut, cancel := context.WithTimeout(ctx, n.within.server)
	defer cancel()
	if err := n.server.Shutdown(shut); err != nil {
		n.log.Warn("calls were cut", "reason", err.Error())
		straggler = true
	}
	end := event{kind: evClosed}
	if straggler || n.outlived() {
		n.step(event{kind: evStraggled}) // the file stays open: a read in it may still run
	} else {
		end = n.closeFile(ctx)
	}
	if end.kind == evClosed {
		n.log.Info("stopped", "exit", n.state.exit)
		n.flush(ctx)
	}
	return end
}

// outlived waits a moment for the tasks that were cancelled long ago, and reports whether one still is in the middle of something.
func (n *Node) outlived() bool {
	return !pollFor(n.grace(), func() bool { return n.liveTasks.Load() == 0 })
}

// pollFor asks each millisecond whether is holds, for as long as within, and reports whether it came to hold.
func pollFor(within time.Duration, is func() bool) bool {
	//rawchan: it ends with the wait
	late, tick := time.NewTimer(within), time.NewTicker(time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			return false
		}
	}
	return true
}

// closeFile frees the caches and lets the file go.
func (n *Node) closeFile(ctx context.Context) event {
	n.closeEngines(ctx)
	err := n.store.Close()
	if err == nil || errors.Is(err, store.ErrDied) {
		return event{kind: evClosed}
	}
	n.log.Error("the file was not closed in order", "reason", err.Error())
	if e := n.fatal(); e.kind == evPoisoned {
		return e
	}
	n.step(event{kind: evFailed, code: ExitStorage})
	return event{kind: evClosed}
}

// flush waits a moment for spans and log lines each; a reader that is stuck loses them.
func (n *Node) flush(ctx context.Context) {
	if err := n.closeTracer(ctx); err != nil {
		n.log.Warn("spans were lost", "reason", err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, n.within.lines)
	defer cancel()
	if n.ring.Flush(ctx) != nil {
		n.sup.Drain(ownService, 0, n.grace())
	}
}

func (n *Node) closeTracer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.within.spans)
	defer cancel()
	return n.tracer.Close(ctx)
}

// die ends a node whose file cannot be trusted any more: nothing is written, nothing is closed but the sockets, and
// a task that does not return at once is left behind.
func (n *Node) die(ctx context.Context) {
	err := n.store.Err()
	n.log.Error("the store has failed", "reason", err.Error(), "next", classify(err).next)
	n.server.SetGate(httpapi.GateClosed)
	shut, cancel := context.WithTimeout(ctx, dieWithin)
	defer cancel()
	_ = flow.Fan(shut, 3, func(ctx context.Context, leg int) error {
		switch leg {
		case 0:
			return n.server.Shutdown(ctx)
		case 1:
			n.abortEngines(ctx, dieWithin)
		case 2:
			n.sup.Drain("store", 0, dieWithin)
		}
		return nil
	})
	_ = n.ring.Flush(shut)
	n.sup.Drain(ownService, 0, dieWithin/3)
}

func (n *Node) grace() time.Duration { return n.boot.Node.AbortGrace.D() }
