package server

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/member"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/cluster"
	"ronbox/httpapi"
	"ronbox/store"
)

// clusterMember is the part of this node in its cluster.
type clusterMember interface {
	// Replicator is called before anything is open.
	Replicator() store.Replicator
	// Fetch downloads the file, if this node joins, and reads whose it is. The file is not open.
	Fetch(context.Context) error
	// Listen binds the peer port and accepts nothing. The file is open and not prepared.
	Listen(context.Context) error
	// Start joins the other members. The file is prepared and the committer runs.
	Start(context.Context, *store.Store) error
	Tasks() []flow.Task
	Elected() <-chan struct{} // closed once the store accepts commands; the engines may recover
	Deposed() <-chan struct{} // closed when this life must end
	// Reason returns why Deposed is closed. With an error the process must exit.
	Reason() (string, error)
	// Compare learns the clocks of the other members, unless it knows them.
	Compare(context.Context)
	// Yield makes another member the leader, if this one leads and another can.
	Yield(context.Context)
	// Keep returns a duplicate of the peer port for the next life.
	Keep() (systemd.Socket, error)
	// Shutdown ends the requests of other members. It waits for them until ctx ends.
	Shutdown(context.Context) error
	// Close ends everything else. The tasks and the committer have ended.
	Close() error
}

// elected returns the channel of the election, or nil for a node alone.
func (n *Node) elected() <-chan struct{} {
	if n.member == nil {
		return nil
	}
	return n.member.Elected()
}

// deposed returns the channel that ends this life, or nil for a node alone.
func (n *Node) deposed() <-chan struct{} {
	if n.member == nil {
		return nil
	}
	return n.member.Deposed()
}

// isDeposed reports whether this life must end.
func (n *Node) isDeposed() bool {
	select {
	case <-n.deposed():
		return true
	default:
		return false
	}
}

// deposition returns the event of the end of this life. No other life follows that of a node that
// is to stop.
func (n *Node) deposition() process.Event {
	why, err := n.member.Reason()
	switch {
	case err == nil && n.quits.Load() > 0:
		n.drain.ask("cluster leave")
		return process.Event{Kind: process.EvDrain}
	case err == nil && n.drains():
		return process.Event{Kind: process.EvDrain}
	case err == nil:
		return process.Event{Kind: process.EvDeposed}
	}
	v := n.classify(err)
	n.log.Error("this life has failed", "reason", why, "error", err.Error(), "next", v.Next)
	switch {
	case n.store.Err() != nil:
		return n.fatal()
	case v.Code == process.ExitInternal:
		v.Code = process.ExitStorage // of the log
	}
	return process.Event{Kind: process.EvFailed, Code: v.Code}
}

// drains reports whether the node was told to stop, or to end this life in order.
func (n *Node) drains() bool {
	select {
	case <-n.drain.asked:
		return true
	default:
		return false
	}
}

// closeMember ends the part in the cluster, after the committer.
func (n *Node) closeMember(ctx context.Context) error {
	err := n.member.Shutdown(ctx)
	n.sup.Cancel(member.Name, n.grace())
	switch why, _ := n.member.Reason(); cluster.Reason(why) {
	case cluster.ReasonHung, cluster.ReasonFailed: // raft may hang
		return err
	}
	return errors.Join(err, n.member.Close())
}

// standsBy reports whether the node is a member that does not lead. It then writes nothing of its
// own to the file.
func (n *Node) standsBy() bool {
	phase, _ := n.phase.Load()
	return phase == flow.Standby
}

// standby starts what a member runs before its election, and waits for it. No engine has its state
// yet, and nothing is committed.
func (n *Node) standby(ctx context.Context) process.Event {
	err := n.prepare(ctx)
	if err == nil {
		err = n.member.Start(ctx, n.store)
	}
	if err != nil {
		return n.bootFailed(ctx, err)
	}
	n.board.Silence(true) // no engine runs
	n.sup.Start(n.member.Tasks()...)
	n.sup.Start(n.countLives(n.watchers()...)...)
	n.copies.LoadFirst(ctx)
	n.server.SetGate(httpapi.GateOpen)
	n.accept()
	n.log.Info("standby", "url", n.server.URL(), "boot_ms", n.uptime().Milliseconds())
	n.manager.Serving("ready, standing by at " + n.server.URL())
	return n.waitElected(ctx)
}

// waitElected returns the next event of a member that does not lead. It reloads configurations and
// the copies of the engines meanwhile, and so never while the engines recover.
func (n *Node) waitElected(ctx context.Context) process.Event {
	defer n.copies.Tick.Stop()
	n.copies.Load(ctx)
	retry := time.NewTimer(n.unapplied.delay())
	defer retry.Stop()
	for {
		select {
		case <-n.deposed():
			return n.deposition()
		case <-n.store.Failed():
			return n.fatal()
		case <-n.died.asked:
			return n.fatal()
		case <-n.abort.asked:
			return process.Event{Kind: process.EvAbort}
		case <-n.drain.asked:
			return process.Event{Kind: process.EvDrain}
		case <-n.elected():
			return process.Event{Kind: process.EvElected}
		case <-n.copies.Tick.C():
			n.copies.Load(ctx)
		case r, ok := <-n.reloads.C():
			if ok {
				n.collapse(r)
				n.reload(ctx, r)
				retry.Reset(n.unapplied.delay())
			}
		case <-retry.C:
			n.applyAgain(ctx)
			retry.Reset(n.unapplied.delay())
		}
	}
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

// yieldWithin bounds the transfer of the leadership before a drain.
const yieldWithin = 5 * time.Second

// yield lets another member lead before this one drains. It returns early with the cause of an
// abort or a fault.
func (n *Node) yield(ctx context.Context) (cause process.Event, cut bool) {
	if n.member == nil {
		return process.Event{}, false
	}
	ctx, leave := context.WithTimeout(ctx, yieldWithin)
	defer leave()
	done := make(chan struct{})
	_ = flow.Fan(ctx, 2, func(ctx context.Context, leg int) error { // no leg fails
		if leg == 0 {
			defer close(done)
			n.member.Yield(ctx)
			return nil
		}
		if cause, cut = until(n, done); cut {
			leave()
		}
		return nil
	})
	return cause, cut
}

// enroll makes the node a member if its directory is that of one.
func (n *Node) enroll() {
	d := member.Deps{
		Node: clusterNode{n}, Config: n.conf, Log: n.levels.Logger(), Catalog: n.catalog, Metrics: n.metrics,
		Clock: n.clock.Clock, Machine: n.clock.Machine, Median: &n.clock.Median,
	}
	var m *member.Member
	switch {
	case n.opt.sketch:
		m, n.unfit = member.Sketch(d)
	case n.opt.clustered:
		m, n.unfit = member.Enroll(d)
	}
	if m != nil {
		n.member = m
	}
}

// part returns the part of this node in its cluster, or nil for a node alone.
func (n *Node) part() *member.Member {
	m, _ := n.member.(*member.Member)
	return m
}

// clusterAdmin returns the operations of the cluster's routes.
func (n *Node) clusterAdmin() member.Admin {
	return member.NewAdmin(clusterNode{n}, n.boot, n.store, n.part())
}

// clusterNode is the node as its part in the cluster uses it. It has Renew and Drain of Node.
type clusterNode struct{ *Node }

func (n clusterNode) Progress(stage string, done, total int64) { n.bootProgress(stage, done, total) }
func (n clusterNode) Note(ctx context.Context, e store.Event)  { n.note(ctx, e) }
func (n clusterNode) StandsBy() bool                           { return n.standsBy() }
func (n clusterNode) FlushBalances(ctx context.Context)        { n.services.FlushBalances(ctx) }
func (n clusterNode) Copies(service string) bool               { return n.copies.Has(service) }

func (n clusterNode) Quit(quits bool) {
	by := int64(1)
	if !quits {
		by = -1
	}
	n.quits.Add(by)
}

func (n clusterNode) Serves() bool {
	phase, _ := n.phase.Load()
	return phase >= flow.Running
}
