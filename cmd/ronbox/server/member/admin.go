package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	clusterhttp "ronbox/httpapi/cluster"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Admin performs the operations of the cluster's routes. A node alone has only Init.
type Admin struct {
	node  Node
	cfg   *config.Config
	store *store.Store
	m     *Member // nil: a node alone
}

// NewAdmin returns the operations of a node. m is nil on a node alone.
func NewAdmin(node Node, cfg *config.Config, s *store.Store, m *Member) Admin {
	return Admin{node, cfg, s, m}
}

// conflict returns the error of an operation that the state excludes.
func conflict(format string, args ...any) error {
	return &clusterhttp.ConflictError{Reason: fmt.Sprintf(format, args...)}
}

// member returns the membership of the node, or an error on a node alone.
func (a Admin) member() (*Member, error) {
	if a.m != nil && a.m.started.Load() {
		return a.m, nil
	}
	return nil, conflict("the node belongs to no cluster: `ronbox cluster init` makes one of it")
}

// viewWithin bounds the wait for the view of the leader.
const viewWithin = time.Second

// leader returns a client of the leader, or an error if this node leads or none is known.
func (m *Member) leader() (clusterapi.Client, error) {
	id, addr, known := m.raft.Leader()
	if !known || id == m.id.ServerID() {
		return clusterapi.Client{}, store.ErrNotLeader
	}
	c, err := client.New(client.Options{
		URL: "https://" + addr, Transport: httpapi.OwnRequests(m.client.Transport),
	})
	return clusterapi.NewClient(c), err
}

// Status implements the engine of the routes. Only the leader knows how the others are, so another
// node asks it. If it does not answer, the node asks every member.
func (a Admin) Status(ctx context.Context) (out clusterapi.ClusterStatus, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	return m.status(ctx)
}

func (m *Member) status(ctx context.Context) (out clusterapi.ClusterStatus, err error) {
	if there, err := m.leader(); err == nil {
		ctx, cancel := context.WithTimeout(ctx, viewWithin)
		defer cancel()
		if out, err = there.ClusterStatus(ctx); err == nil {
			out.Self = m.id.ServerID()
			return out, nil
		}
	}
	s, urls := m.raft.Status(ctx), m.urls()
	if !s.Leads {
		m.survey(ctx, s.Members)
	}
	out = clusterapi.ClusterStatus{
		Self: s.Self, Leader: s.Leader, FailureTolerance: uint64(s.FailureTolerance), Term: s.Term, Applied: s.Applied,
		Voters: uint64(s.Voters), Quorum: uint64(s.Quorum()),
	}
	able := uint64(0) // healthy voters that can lead
	for _, one := range s.Members {
		differ := m.peers.Differs(one.ID)
		voter := one.Role == cluster.RoleVoter && one.Healthy
		if voter && differ == "" {
			out.VotersHealthy++
		}
		if voter && !strings.Contains(differ, config.SecretName) {
			able++
		}
		out.Members = append(out.Members, clusterapi.Member{
			ID: one.ID, Role: string(one.Role), URL: cmp.Or(one.URL, urls[one.ID]), Lag: one.Lag,
			Healthy: one.Healthy && differ == "", Note: noteOf(one, differ),
			Address: one.Addr, Applied: one.Applied, SkewMS: one.Skew.Milliseconds(), Unfit: one.Unfit,
			Answers: one.Answers, CertificateEnds: wire.Instant{Time: one.Ends.UTC()},
		})
	}
	out.FailureTolerance = min(out.FailureTolerance, max(able, 1)-1)
	return out, nil
}

// survey asks the other members how they stand, and records it. It waits for at most viewWithin.
func (m *Member) survey(ctx context.Context, members []cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, viewWithin)
	defer cancel()
	_ = flow.Fan(ctx, len(members), func(ctx context.Context, i int) error { // no leg fails
		one := &members[i]
		if one.Answers = one.ID == m.id.ServerID(); !one.Answers {
			m.ask(ctx, one)
		}
		one.Healthy = one.Answers && one.Unfit == "" && one.Skew.Abs() <= cluster.MostSkew
		return nil
	})
}

// ask asks another member how it stands. One that refuses, because it has removed this node,
// answers too.
func (m *Member) ask(ctx context.Context, one *cluster.Member) {
	from := m.d.Clock.Wall()
	s, err := member.AskStand(ctx, m.client, one.Addr)
	_, refused := errors.AsType[*member.RemoteError](err)
	if one.Answers = err == nil || refused; err != nil {
		return
	}
	one.Applied, one.Unfit, one.URL = s.Applied, s.Unfit, s.URL
	one.Skew = peer.SkewOf(s.Clock, from, m.d.Clock.Wall()).By
}

// noteOf describes why a member is not healthy, or returns "".
func noteOf(m cluster.Member, differ string) string {
	switch {
	case m.Strange:
		return "a node of another cluster answers at its address: see `ronbox cluster recover --help`"
	case differ != "":
		return differ + ": not that of the leader"
	case !m.Answers:
		return "does not answer at " + m.Addr + ": start it, or see `ronbox cluster rejoin --help`"
	case m.Unfit != "":
		return "unfit to lead: " + m.Unfit
	case m.Answers && !m.Healthy:
		return "its clock differs from those of most members by " + m.Skew.Round(time.Millisecond).String()
	}
	return ""
}

// Summary returns the part of the node in its cluster, or nil before it has one.
func (m *Member) Summary() *nodeapi.MemberStatus {
	if !m.started.Load() {
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
func (a Admin) Init(
	_ context.Context, by engines.Actor, corrID string, r clusterapi.InitRequest,
) (out clusterapi.Inited, err error) {
	if a.cfg.Amnesia.Enabled {
		return out, conflict("%v", member.ErrEphemeral)
	}
	addr := cmp.Or(r.Advertise, a.cfg.Cluster.Address())
	if err := peer.CheckAddress(addr); err != nil {
		return out, conflict("%v: name it with --advertise or cluster.advertise", err)
	}
	id, err := member.At(a.cfg.Node.DataDir).BeginInit(*a.store.Info(), addr)
	switch {
	case errors.Is(err, member.ErrMember), errors.Is(err, member.ErrUnfinished), errors.Is(err, store.ErrRestored),
		errors.Is(err, store.ErrSchema), errors.Is(err, store.ErrLocked):
		return out, conflict("%v", err)
	case err != nil:
		return out, err
	}
	a.node.Renew(by, corrID, "cluster init")
	return clusterapi.Inited{Cluster: id.ClusterID(), ID: id.ServerID()}, nil
}

// Token implements the engine of the routes.
func (a Admin) Token(
	ctx context.Context, by engines.Actor, corrID string, r clusterapi.JoinTokenRequest,
) (out clusterapi.JoinToken, err error) {
	m, err := a.member()
	if err == nil {
		err = m.mayAdmit()
	}
	if err != nil {
		return out, err
	}
	token, expires, err := member.Mint(ctx, a.store, m.id.Pin(), member.MintSpec{
		Standby: r.Standby, By: tokens.AuditEvent("cluster.token", by, corrID, nil),
	})
	if errors.Is(err, member.ErrManyTokens) {
		return out, conflict("%v", err)
	}
	return clusterapi.JoinToken{
		Token: token.String(), URL: "https://" + m.id.Advertise(), ExpiresAt: wire.Instant{Time: expires},
	}, err
}

// Leave implements the engine of the routes.
func (a Admin) Leave(
	ctx context.Context, by engines.Actor, corrID string, r clusterapi.LeaveRequest,
) (out clusterapi.Removed, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	out.ID = m.id.ServerID()
	if !r.Last {
		return out, a.leave(ctx, m, by, corrID)
	}
	if m.removed.Load() {
		return out, conflict("the cluster has removed this node: `ronbox cluster leave` without --last stops it")
	}
	if err := m.raft.MayLeaveLast(); errors.Is(err, cluster.ErrNotAlone) {
		return out, conflict("%v: remove them first, or take out this node, without --last", err)
	} else if err != nil {
		return out, err
	}
	if err := m.dir.BeginLeave(); err != nil {
		return out, err
	}
	a.node.Note(ctx, tokens.AuditEvent("cluster.left", by, corrID, map[string]string{"server": out.ID}))
	a.node.Renew(by, corrID, "cluster leave")
	return out, nil
}

// leave removes this node from the cluster and stops it. It has no use then: it stands by for ever.
func (a Admin) leave(ctx context.Context, m *Member, by engines.Actor, corrID string) error {
	if m.raft.MayLeaveLast() == nil {
		return conflict("it is the last member: `ronbox cluster leave --last` makes it a node alone")
	}
	there, err := m.leader()
	if m.removed.Load() { // by another node, or by a leave whose answer was lost
		err = nil
	} else if err == nil {
		_, err = there.RemoveMember(ctx, m.id.ServerID())
		if p, refused := errors.AsType[*wire.Problem](err); refused && p.Status == http.StatusConflict {
			err = conflict("%s", p.Detail)
		}
	} else {
		a.node.Quit(true)
		if _, err = a.Remove(ctx, by, corrID, m.id.ServerID()); err != nil {
			a.node.Quit(false)
		}
	}
	if err != nil {
		return err
	}
	a.node.Drain(by, corrID, "cluster leave")
	return nil
}

// Remove implements the engine of the routes.
func (a Admin) Remove(
	ctx context.Context, by engines.Actor, corrID, id string,
) (out clusterapi.Removed, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	if m.raft.IsMember(id) {
		if err := member.Forget(ctx, a.store, id); err != nil {
			return out, err
		}
	}
	switch err = m.raft.Remove(ctx, id); {
	case errors.Is(err, cluster.ErrUnknownMember):
		return out, httpapi.ErrNoSuch
	case errors.Is(err, cluster.ErrQuorum):
		return out, conflict("%v", err)
	case err != nil:
		return out, err
	}
	a.node.Note(ctx, tokens.AuditEvent("cluster.removed", by, corrID, map[string]string{"server": id}))
	return clusterapi.Removed{ID: id}, nil
}
