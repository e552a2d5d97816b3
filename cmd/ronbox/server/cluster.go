package server

import (
	"context"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// member is the part of this node in its cluster.
type member interface {
	// Start joins the other members. The file is prepared and the committer runs.
	Start(context.Context, *store.Store) error
	Tasks() []flow.Task
	Elected() <-chan struct{} // closed once the store accepts commands; the engines may recover
	Deposed() <-chan struct{} // closed when this life must end
	Reason() string           // why Deposed is closed
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

// standsBy reports whether the node is a member that does not lead. It then writes nothing of its
// own to the file.
func (n *Node) standsBy() bool {
	phase, _ := n.phase.Load()
	return phase == flow.Standby
}

// standby starts what a member runs before its election, and waits for it. No engine has its state
// yet, and nothing is committed.
func (n *Node) standby(ctx context.Context) event {
	err := n.prepare(ctx)
	if err == nil {
		err = n.member.Start(ctx, n.store)
	}
	if err != nil {
		return n.bootFailed(ctx, err)
	}
	n.sup.Start(n.member.Tasks()...)
	n.sup.Start(n.countLives(n.watchers()...)...)
	n.accept()
	n.log.Info("standby", "url", n.server.URL(), "boot_ms", n.uptime().Milliseconds())
	n.manager.serving("Standby " + n.server.URL())
	return n.waitElected(ctx)
}

// waitElected returns the next event of a member that does not lead. It reloads configurations
// meanwhile, so that no reload runs while the engines recover.
func (n *Node) waitElected(ctx context.Context) event {
	for {
		select {
		case <-n.deposed():
			return event{kind: evDeposed}
		case <-n.store.Failed():
			return n.fatal()
		case <-n.died.asked:
			return n.fatal()
		case <-n.abort.asked:
			return event{kind: evAbort}
		case <-n.drain.asked:
			return event{kind: evDrain}
		case <-n.elected():
			return event{kind: evElected}
		case r, ok := <-n.reloads.C():
			if ok {
				n.collapse(r)
				n.reload(ctx, r)
			}
		}
	}
}
