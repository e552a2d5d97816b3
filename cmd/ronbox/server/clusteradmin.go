package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	clusterhttp "ronbox/httpapi/cluster"
	clusterapi "ronbox/httpapi/wire/cluster"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// clusterAdmin performs the operations of the cluster's routes. A node alone has only Init.
type clusterAdmin struct{ n *Node }

// conflict returns the error of an operation that the state excludes.
func conflict(format string, args ...any) error {
	return &clusterhttp.ConflictError{Reason: fmt.Sprintf(format, args...)}
}

// member returns the membership of the node, or an error on a node alone.
func (a clusterAdmin) member() (*membership, error) {
	if m, ok := a.n.member.(*membership); ok && m.started.Load() {
		return m, nil
	}
	return nil, conflict("the node belongs to no cluster: `ronbox cluster init` makes one of it")
}

// Status implements the engine of the routes.
func (a clusterAdmin) Status(ctx context.Context) (out clusterapi.ClusterStatus, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	s := m.raft.Status(ctx)
	out = clusterapi.ClusterStatus{Self: s.Self, Leader: s.Leader, FailureTolerance: uint64(s.FailureTolerance)}
	for _, one := range s.Members {
		out.Members = append(out.Members, clusterapi.Member{
			ID: one.ID, Role: string(one.Role), URL: one.URL, Lag: one.Lag, Healthy: one.Healthy,
		})
	}
	return out, nil
}

// clusterStatus returns the part of the node in its cluster, or nil on a node alone.
func (n *Node) clusterStatus() *nodeapi.MemberStatus {
	m, err := clusterAdmin{n}.member()
	if err != nil {
		return nil
	}
	s := m.raft.Status(context.Background())
	out := &nodeapi.MemberStatus{Self: s.Self, Leader: s.Leader, Role: "follower", Applied: s.Applied}
	if s.Leads {
		out.Role = "leader"
	}
	for _, one := range s.Members {
		if one.ID == s.Self {
			out.Lag = one.Lag
		}
	}
	return out
}

// Init implements the engine of the routes.
func (a clusterAdmin) Init(
	_ context.Context, by engines.Actor, corrID string, r clusterapi.InitRequest,
) (out clusterapi.Inited, err error) {
	n := a.n
	if n.boot.Amnesia.Enabled {
		return out, conflict("%v", member.ErrEphemeral)
	}
	id, err := member.At(n.boot.Node.DataDir).
		BeginInit(*n.store.Info(), cmp.Or(r.Advertise, n.boot.Cluster.Address()))
	switch {
	case errors.Is(err, member.ErrMember), errors.Is(err, member.ErrUnfinished), errors.Is(err, store.ErrRestored),
		errors.Is(err, store.ErrSchema), errors.Is(err, store.ErrLocked):
		return out, conflict("%v", err)
	case err != nil:
		return out, err
	}
	n.Renew(by, corrID, "cluster init")
	return clusterapi.Inited{Cluster: id.ClusterID(), ID: id.ServerID()}, nil
}

// Token implements the engine of the routes.
func (a clusterAdmin) Token(
	ctx context.Context, by engines.Actor, corrID string, r clusterapi.JoinTokenRequest,
) (out clusterapi.JoinToken, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	token, expires, err := member.Mint(ctx, a.n.store, m.id.Pin(), member.MintSpec{
		Standby: r.Standby, By: tokens.AuditEvent("cluster.token", by, corrID, nil),
	})
	if errors.Is(err, member.ErrManyTokens) {
		return out, conflict("%v", err)
	}
	return clusterapi.JoinToken{Token: token.String(), URL: "https://" + m.id.Advertise(), ExpiresAt: expires}, err
}

// Leave implements the engine of the routes.
func (a clusterAdmin) Leave(
	ctx context.Context, by engines.Actor, corrID string, r clusterapi.LeaveRequest,
) (out clusterapi.Removed, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	out.ID = m.id.ServerID()
	if !r.Last {
		return out, conflict("run `ronbox cluster remove %s --yes` on another node, then stop this one", out.ID)
	}
	if err := m.raft.MayLeaveLast(); errors.Is(err, cluster.ErrNotAlone) {
		return out, conflict("%v: remove them first", err)
	} else if err != nil {
		return out, err
	}
	if err := m.dir.BeginLeave(); err != nil {
		return out, err
	}
	a.n.note(ctx, tokens.AuditEvent("cluster.left", by, corrID, map[string]string{"server": out.ID}))
	a.n.Renew(by, corrID, "cluster leave")
	return out, nil
}

// Remove implements the engine of the routes.
func (a clusterAdmin) Remove(
	ctx context.Context, by engines.Actor, corrID, id string,
) (out clusterapi.Removed, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	switch err = m.raft.Remove(ctx, id); {
	case errors.Is(err, cluster.ErrUnknownMember):
		return out, httpapi.ErrNoSuch
	case errors.Is(err, cluster.ErrQuorum):
		return out, conflict("%v", err)
	case err != nil:
		return out, err
	}
	a.n.note(ctx, tokens.AuditEvent("cluster.removed", by, corrID, map[string]string{"server": id}))
	return clusterapi.Removed{ID: id}, nil
}
