package server

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/httpapi"
	"ronbox/store"
)

// bounds are the time limits of the parts of a stop.
type bounds struct {
	store  time.Duration // the committer empties its lanes
	server time.Duration // answers in progress
	spans  time.Duration // export of spans
	lines  time.Duration // log lines
}

// stopWithin holds the default time limits of a stop. Together with the graces of each part they
// add up to 4 s after the drain.
var stopWithin = bounds{
	store:  1500 * time.Millisecond,
	server: 750 * time.Millisecond,
	spans:  300 * time.Millisecond,
	lines:  200 * time.Millisecond,
}

const (
	dieWithin = 300 * time.Millisecond // everything, once nothing can be trusted

	// afterDrain is the time requested from a service manager in addition to the drain: twice the
	// time limits above.
	afterDrain = 8 * time.Second

	// lameDuck is the least time between closing the gate and closing the sockets, so that a client
	// with a busy connection gets 503 draining instead of a closed connection.
	lameDuck = 200 * time.Millisecond
)

// drainServices refuses new work and lets accepted work finish.
func (n *Node) drainServices(ctx context.Context) process.Event {
	n.log.Info("draining", "reason", n.drain.reason)
	n.announceStop(n.drain.reason, n.conf().Node.Predrain.D()+yieldWithin+wiring.DrainDeadline(n.conf())+afterDrain)
	if e, cut := n.predrain(); cut {
		return e
	}
	if e, cut := n.yield(ctx); cut {
		return e
	}
	n.closeIntake()
	n.unnoted = true
	linger := time.NewTimer(lameDuck)
	defer linger.Stop()
	if e := n.join(ctx, wiring.DrainDeadline(n.conf())); e.Kind != process.EvDrained {
		return e
	}
	if n.server.Conns() == 0 {
		return process.Event{Kind: process.EvDrained} // no client is connected
	}
	if e, cut := until(n, linger.C); cut {
		return e
	}
	return process.Event{Kind: process.EvDrained}
}

// announceStop notifies the service manager that the node stops, or that it starts again.
func (n *Node) announceStop(reason string, within time.Duration) {
	if n.renewing() {
		n.manager.Reloading()
		return
	}
	n.manager.Stopping(reason, within)
}

// predrain keeps serving while not ready, so that load balancers can react.
func (n *Node) predrain() (cause process.Event, cut bool) {
	if n.conf().Node.Predrain == 0 {
		return process.Event{}, false
	}
	n.server.SetGate(httpapi.GatePredrain)
	over := time.NewTimer(n.conf().Node.Predrain.D())
	defer over.Stop()
	return until(n, over.C)
}

// until waits for over. It returns early with the cause of an abort or a fault.
func until[T any](n *Node, over <-chan T) (cause process.Event, cut bool) {
	select {
	case <-over:
		return process.Event{}, false
	case <-n.abort.asked:
		return process.Event{Kind: process.EvAbort}, true
	case <-n.store.Failed():
		return n.fatal(), true
	case <-n.died.asked:
		return n.fatal(), true
	}
}

// closeIntake closes the gate for requests that would queue or commit, ends background work, and
// closes the queues that handlers feed.
func (n *Node) closeIntake() {
	n.server.SetGate(httpapi.GateDraining)
	n.sup.CancelBackground()
	if n.renewing() {
		n.keepSockets()
	}
	wiring.CloseIntakes(n.catalog)
}

// noteDrain appends an audit row for the drain, with how the work has ended. A store that cannot
// write it does not delay the stop. A node that has transferred the leadership before has written
// its last row with that.
func (n *Node) noteDrain(ctx context.Context) {
	if n.member != nil && n.isDeposed() {
		n.unnoted = false
		return
	}
	e := tokens.AuditEvent("node.drain", n.drain.by, n.drain.corrID, perService(n.endingsOf(false)))
	e.Reason = n.drain.reason
	n.note(ctx, e)
	n.unnoted = false
}

// join waits for the engine tasks and then for the audit row of the drain, unless tasks had to be
// aborted. An abort or a fault ends it early.
func (n *Node) join(ctx context.Context, within time.Duration) process.Event {
	ctx, leave := context.WithTimeout(ctx, within)
	defer leave()
	done, cause, cut, aborted := make(chan struct{}), process.Event{}, false, 0
	_ = flow.Fan(ctx, 2, func(ctx context.Context, leg int) error { // no leg fails
		if leg == 0 {
			defer close(done)
			if aborted = n.drainEngines(ctx); aborted == 0 && ctx.Err() == nil {
				n.noteDrain(ctx)
			}
			return nil
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
		return process.Event{Kind: process.EvOverdue}
	}
	return process.Event{Kind: process.EvDrained}
}

// abortServices cancels the tasks of every engine.
func (n *Node) abortServices(ctx context.Context) process.Event {
	n.announceStop("abort", afterDrain)
	n.closeIntake()
	n.abortEngines(ctx, n.grace())
	return process.Event{Kind: process.EvDrained}
}

// stop closes lanes, sockets and file, in this order. It also ends a boot that failed.
func (n *Node) stop(ctx context.Context) process.Event {
	defer n.markStopping()()
	n.server.SetGate(httpapi.GateClosed)
	n.sup.CancelBackground()
	if n.renewing() && n.kept == nil {
		n.keepSockets()
	}
	n.refuseReloads() // requests that no reloader handles: the boot failed, or the reloader was restarting
	n.services.End(ctx)
	straggler := n.drainStore(ctx) > 0
	n.endings = drainLine(n.endingsOf(false))
	close(n.ended)
	shut, cancel := context.WithTimeout(ctx, n.within.server)
	defer cancel()
	if err := n.server.Shutdown(shut); err != nil {
		n.log.Warn("calls were cut", "reason", err.Error())
		straggler = true
	}
	if n.member != nil && !straggler {
		if err := n.closeMember(shut); err != nil {
			n.log.Warn("the part in the cluster was not closed in order", "reason", err.Error())
		}
	}
	end := process.Event{Kind: process.EvClosed}
	if straggler || n.outlived(n.grace()) {
		n.step(process.Event{Kind: process.EvStraggled}) // leave the file open: a read may still be running
	} else {
		end = n.closeFile(ctx)
	}
	if end.Kind == process.EvClosed {
		n.logStopped()
		n.flush(ctx)
	}
	return end
}

// drainStore writes the audit row of the drain, if join has not, and closes the lanes. It returns
// the number of tasks that had to be aborted.
func (n *Node) drainStore(ctx context.Context) (aborted int) {
	late := time.Now().Add(n.within.store)
	if n.unnoted {
		ctx, cancel := context.WithDeadline(ctx, late)
		n.noteDrain(ctx)
		cancel()
	}
	n.store.CloseLanes()
	return n.sup.Drain("store", time.Until(late), n.grace())
}

// markStopping locks StoppingName and returns a function that unlocks it. Without the lock verbs
// only wait longer.
func (n *Node) markStopping() (unlock func()) {
	if n.boot.Amnesia.Enabled || n.renewing() {
		return func() {}
	}
	f, err := os.Open(n.boot.Path(config.StoppingName))
	if err != nil {
		return func() {}
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return func() { _ = f.Close() }
}

// outlived waits within for cancelled tasks, and until their ends are counted. It reports whether
// one is still running.
func (n *Node) outlived(within time.Duration) bool {
	return !pollFor(within, func() bool { return n.liveTasks.Load() == 0 && len(n.hanging()) == 0 }) &&
		n.liveTasks.Load() > 0
}

// pollFor polls is every millisecond for at most within, and reports whether it became true.
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

// closeFile frees the caches and closes the file.
func (n *Node) closeFile(ctx context.Context) process.Event {
	n.services.Close(ctx)
	if err := n.archive.Close(); err != nil {
		n.log.Warn("the archive was not closed in order", "reason", err.Error())
	}
	err := n.store.Close()
	if err == nil || errors.Is(err, store.ErrDied) {
		return process.Event{Kind: process.EvClosed}
	}
	n.log.Error("the file was not closed in order", "reason", err.Error())
	if e := n.fatal(); e.Kind == process.EvPoisoned {
		return e
	}
	n.step(process.Event{Kind: process.EvFailed, Code: process.ExitStorage})
	return process.Event{Kind: process.EvClosed}
}

// flush waits briefly for spans and for log lines. A reader that is stuck loses them.
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

// die ends the node after the store has failed and the file can no longer be trusted. It writes
// nothing, closes only the sockets, and does not wait for tasks that do not return at once.
func (n *Node) die(ctx context.Context) {
	err := n.store.Err()
	n.log.Error("the store has failed", "reason", err.Error(), "next", n.classify(err).Next)
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
