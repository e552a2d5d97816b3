package member

import (
	"context"
	"errors"
	"time"

	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	clusterhttp "ronbox/httpapi/cluster"
	clusterapi "ronbox/httpapi/wire/cluster"
	"ronbox/store"
)

// resignWithin bounds what an unfit leader writes before it transfers the leadership.
const resignWithin = 500 * time.Millisecond

// caller is the operator who has asked for a transfer, in its context.
type caller struct {
	by     engines.Actor
	corrID string
}

type callerKey struct{}

// Transfer implements the engine of the routes.
func (a Admin) Transfer(
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

// Yield implements clusterMember of package server.
func (m *Member) Yield(ctx context.Context) {
	if !m.started.Load() || !m.raft.Leads() {
		return
	}
	_, err := m.raft.Transfer(ctx, "", cluster.ReasonDrain)
	switch {
	case errors.Is(err, cluster.ErrNoTarget), errors.Is(err, store.ErrNotLeader):
		m.log.Info("leadership not transferred", "reason", err.Error())
	case err != nil:
		m.log.Warn("leadership not transferred", "reason", err.Error())
	}
}

// stand asks the member at an address how it stands.
func (m *Member) stand(ctx context.Context, addr string) (member.Stand, error) {
	return member.AskStand(ctx, m.client, addr)
}

// resign prepares the node for the loss of the leadership: the next leader recomputes less, and the
// audit chain has a row, which no later one of this node could follow. A transfer that has failed
// adds another.
func (m *Member) resign(ctx context.Context, to string, why cluster.Reason, failed error) {
	if !m.d.Node.Serves() {
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
		m.d.Node.FlushBalances(ctx)
	}
	who, asked := ctx.Value(callerKey{}).(caller)
	if !asked {
		who.by = tokens.Self("cluster")
	}
	m.d.Node.Note(ctx, tokens.AuditEvent(event, who.by, who.corrID, map[string]string{"to": to, "reason": string(why)}))
}
