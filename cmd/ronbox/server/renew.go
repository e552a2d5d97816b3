package server

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/member"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/httpapi"
)

const (
	// renewWithin bounds the end of a life that is not orderly.
	renewWithin = time.Second

	// renewCut bounds the wait for requests. Those that remain are cut, and are answered as unknown
	// if the committer has taken their commands.
	renewCut = 600 * time.Millisecond
)

// Renew ends this life of the node as a drain does, and begins the next one: the process stays the
// same, and the sockets stay bound. It returns immediately.
func (n *Node) Renew(by engines.Actor, corrID, reason string) {
	n.again.askBy(by, corrID, reason)
	n.drain.askBy(by, corrID, reason)
}

// renewing reports whether the drain is to be followed by another life.
func (n *Node) renewing() bool {
	select {
	case <-n.again.asked:
		return true
	default:
		return false
	}
}

// keepSockets stops accepting. Connections made from now on wait for the next life.
func (n *Node) keepSockets() {
	kept, err := n.server.Keep()
	if err != nil {
		n.log.Warn("sockets are bound anew", "reason", err.Error())
	}
	n.kept = append(n.kept, kept...)
	keep := n.spare
	if n.member != nil {
		keep = n.member.Keep
	}
	port, err := keep()
	if err != nil {
		n.log.Warn("the peer port is bound anew", "reason", err.Error())
		return
	}
	if port.Name != "" {
		n.kept = append(n.kept, port)
	}
}

// spare returns a duplicate of the peer port that the service manager has opened for a node alone.
// Only a next life as a member accepts from it, and cannot bind the address itself. Without such a
// port it returns no name.
func (n *Node) spare() (systemd.Socket, error) {
	l := n.opt.inherited[systemd.PeerName]
	if _, ours := l.(*systemd.Kept); ours || l == nil {
		return systemd.Socket{}, nil
	}
	c, ok := l.(syscall.Conn)
	if !ok {
		return systemd.Socket{}, errors.ErrUnsupported
	}
	return systemd.Duplicate(systemd.PeerName, "", c)
}

// renew ends the life of a member that is deposed or hangs. It answers the requests that wait, and
// waits for tasks at most renewWithin, since raft would go on to lead while a disk hangs.
func (n *Node) renew(ctx context.Context) process.Event {
	late := time.Now().Add(renewWithin)
	why, _ := n.member.Reason()
	n.log.Warn("deposed", "reason", why, "next", "the node starts again")
	n.manager.Reloading()
	n.again.ask("deposed")
	n.server.SetGate(httpapi.GateClosed)
	n.sup.CancelBackground()
	n.keepSockets()
	n.refuseReloads()
	n.store.CloseLanes()
	calling := n.cutCalls(ctx) != nil
	hung, within := why == string(cluster.ReasonHung), time.Until(late)
	if hung {
		within = 0 // the file stays open
	}
	if !n.isBusy(within) && !calling && !hung {
		_ = n.closeFile(ctx)
	}
	n.flush(ctx)
	return process.Event{Kind: process.EvClosed}
}

// cutCalls ends the tasks of the engines and the running requests. It returns an error if requests
// still run.
func (n *Node) cutCalls(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	var left error
	done := make(chan struct{})
	_ = flow.Fan(ctx, 3, func(ctx context.Context, leg int) error { // no leg fails
		switch leg {
		case 0:
			defer close(done)
			left = n.server.Shutdown(ctx)
		case 1:
			late := time.NewTimer(renewCut)
			defer late.Stop()
			select {
			case <-done:
			case <-late.C:
				n.server.Cut()
			}
		case 2:
			n.abortEngines(ctx, renewCut)
		}
		return nil
	})
	return left
}

// isBusy waits for the tasks and the committer, which were told to end, and reports whether one
// still runs, so that the file must stay open. A committer that hangs is abandoned, so that the end
// of Run does not wait for it either.
func (n *Node) isBusy(within time.Duration) bool {
	late := time.Now().Add(within)
	committing := n.sup.Drain("store", within, time.Millisecond) > 0
	return n.outlived(time.Until(late)) || committing
}

// end returns the exit code of the node. If another life is to follow, it does not return.
func (n *Node) end(ctx context.Context) (exit int) {
	if !n.renewing() || ctx.Err() != nil || n.state.Exit > process.ExitAborted {
		return n.state.Exit
	}
	begin := systemd.Again
	if n.opt.again != nil {
		begin = n.opt.again
	} else {
		// a signal that comes from here on ends the process, one that came before has ended ctx
		signal.Reset(syscall.SIGTERM, os.Interrupt)
		signal.Ignore(syscall.SIGHUP)
		if ctx.Err() != nil {
			return n.state.Exit
		}
	}
	err := begin(n.kept, n.lives()...)
	if err == nil {
		return n.state.Exit // the hook of a test
	}
	n.log.Error("the node cannot start again", "reason", err.Error(), "next", "start it")
	n.flush(context.WithoutCancel(ctx))
	return process.ExitNotRenewed
}

// lives returns the variables that tell the next life of the ends of the earlier ones.
func (n *Node) lives() []string {
	if !n.isDeposed() {
		return nil
	}
	why, _ := n.member.Reason()
	return member.AfterDeposition(cluster.Reason(why))
}
