package server

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	clusterhttp "ronbox/httpapi/cluster"
	clusterapi "ronbox/httpapi/wire/cluster"
	"ronbox/store"
)

const (
	// yieldWithin bounds the transfer of the leadership before a drain.
	yieldWithin = 5 * time.Second

	// resignWithin bounds what an unfit leader writes before it transfers the leadership.
	resignWithin = 500 * time.Millisecond
)

// caller is the operator who has asked for a transfer, in its context.
type caller struct {
	by     engines.Actor
	corrID string
}

type callerKey struct{}

// Transfer implements the engine of the routes.
func (a clusterAdmin) Transfer(
	ctx context.Context, by engines.Actor, corrID, id string,
) (out clusterapi.Transferred, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	done, err := m.raft.Transfer(
		context.WithValue(ctx, callerKey{}, caller{by, corrID}), id, cluster.ReasonAsked,
	)
	switch {
	case errors.Is(err, cluster.ErrNoTarget):
		return out, conflict("%v", err)
	case errors.Is(err, cluster.ErrNotTransferred):
		return out, &clusterhttp.StayedError{Reason: err.Error()}
	}
	return clusterapi.Transferred{From: done.From, To: done.To, TookMS: done.Took.Milliseconds()}, err
}

// Yield implements clusterMember.
func (m *membership) Yield(ctx context.Context) {
	if !m.started.Load() || !m.raft.Leads() {
		return
	}
	_, err := m.raft.Transfer(ctx, "", cluster.ReasonDrain)
	switch {
	case errors.Is(err, cluster.ErrNoTarget), errors.Is(err, store.ErrNotLeader):
		m.n.log.Info("leadership not transferred", "reason", err.Error())
	case err != nil:
		m.n.log.Warn("leadership not transferred", "reason", err.Error())
	}
}

// stand asks the member at an address how it stands.
func (m *membership) stand(ctx context.Context, addr string) (member.Stand, error) {
	return member.AskStand(ctx, m.client, addr)
}

// resign prepares the node for the loss of the leadership: the next leader recomputes less, and the
// audit chain has a row, which no later one of this node could follow. A transfer that has failed
// adds another.
func (m *membership) resign(ctx context.Context, to string, why cluster.Reason, failed error) {
	if phase, _ := m.n.phase.Load(); phase < flow.Running {
		return
	}
	if why == cluster.ReasonUnfit {
		short, cancel := context.WithTimeout(ctx, resignWithin)
		defer cancel()
		ctx = short
	}
	event := "cluster.transferred"
	if failed != nil {
		event = "cluster.transfer_failed"
	} else {
		m.n.flushBalances(ctx)
	}
	who, asked := ctx.Value(callerKey{}).(caller)
	if !asked {
		who.by = tokens.Self("cluster")
	}
	m.n.note(ctx, tokens.AuditEvent(event, who.by, who.corrID, map[string]string{"to": to, "reason": string(why)}))
}

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
