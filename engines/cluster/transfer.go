package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

const (
	standWithin    = 500 * time.Millisecond // for the answers of the other voters
	transferWithin = 30 * time.Second       // a stopped target is waited for, see reopen
	settleEvery    = 10 * time.Millisecond
)

var (
	// ErrNoTarget is returned by Transfer if the leadership cannot go to another voter.
	ErrNoTarget = errors.New("cluster: no other voter can lead now")
	// ErrNotTransferred is returned by Transfer if the target did not take the leadership. This
	// node leads on, unless a quorum has elected another one meanwhile.
	ErrNotTransferred = errors.New("cluster: the leadership was not transferred")

	errTransferring = fmt.Errorf("the leadership is being transferred: %w", store.ErrBusy)
)

// Transferred describes a transfer of the leadership.
type Transferred struct {
	From string
	To   string
	Took time.Duration // for which this node took no groups
}

// Transfer makes another voter the leader: the one named to, or with "" the one that lacks the
// fewest entries. The life of this node ends for the reason why, which is one of ReasonAsked,
// ReasonDrain and ReasonUnfit. Groups that wait meanwhile are refused. Transfer returns
// [store.ErrNotLeader] if this node does not lead, [store.ErrBusy] during another transfer,
// ErrNoTarget, and ErrNotTransferred.
func (n *Node) Transfer(ctx context.Context, to string, why Reason) (Transferred, error) {
	at := n.reign.Load()
	if at == nil || !n.Leads() {
		return Transferred{}, store.ErrNotLeader
	}
	out, err := n.transfers.Do(ctx, to, struct{}{}, transferWithin, func(ctx context.Context) (Transferred, error) {
		return n.transfer(ctx, at, to, why)
	})
	if errors.Is(err, flow.ErrBusy) || errors.Is(err, flow.ErrFlightFull) { // to another target, or to the same
		err = errTransferring
	}
	return out, err
}

func (n *Node) transfer(ctx context.Context, at *reign, to string, why Reason) (out Transferred, err error) {
	target, err := n.successor(ctx, to)
	if err != nil {
		return out, err
	}
	out = Transferred{From: n.deps.Self.ServerID(), To: string(target.ID)}
	tell := n.deps.Resign
	if tell == nil {
		tell = func(context.Context, string, Reason, error) {}
	}
	tell(ctx, out.To, why, nil)
	begun := time.Now()
	if err = n.handLeadership(ctx, at, target, why); err != nil {
		n.metrics.untransferred(1)
		tell(ctx, out.To, why, err)
		return out, fmt.Errorf("%w: %s: %w", ErrNotTransferred, target.ID, err)
	}
	out.Took = time.Since(begun)
	n.log.Info("transferred", "to", out.To, "reason", string(why), "took_ms", out.Took.Milliseconds())
	return out, nil
}

// handLeadership makes raft transfer the leadership while no group is under way: raft would refuse
// its entry, and nothing would tell the committer.
func (n *Node) handLeadership(ctx context.Context, at *reign, target raft.Server, why Reason) error {
	patience := time.NewTimer(n.heartbeat())
	defer patience.Stop()
	select {
	case n.gate <- struct{}{}:
	case <-patience.C:
		return errors.New("a group is under way for longer than a heartbeat")
	case <-at.lost:
		return store.ErrNotLeader
	}
	n.leaving.Store(&why)
	err := n.raft.LeadershipTransferToServer(target.ID, target.Address).Error()
	if err == nil { // raft has left the leadership, or is about to
		patience.Reset(n.heartbeat())
		select {
		case <-at.lost:
			return nil
		case <-patience.C:
			err = errors.New("no answer within a heartbeat")
		}
	}
	n.leaving.Store(nil)
	n.reopen(ctx)
	return err
}

// reopen lets groups go on after a failed transfer. Until raft has ended the transfer it refuses
// their entries: with a target that has stopped, up to the time limit of a message.
func (n *Node) reopen(ctx context.Context) {
	for ctx.Err() == nil && errors.Is(n.raft.Apply(nil, n.heartbeat()).Error(), raft.ErrLeadershipTransferInProgress) {
		again := time.NewTimer(settleEvery)
		select {
		case <-again.C:
		case <-n.deposed:
		case <-ctx.Done():
		}
		again.Stop()
	}
	<-n.gate
}

// candidate is another voter and how it stands.
type candidate struct {
	raft.Server
	lag uint64 // entries that it lacks
	bad string // why it cannot lead now, "" if it can
}

// successor returns the voter that is to lead: the one named to, or the best one.
func (n *Node) successor(ctx context.Context, to string) (raft.Server, error) {
	others, err := n.candidates(to)
	if err != nil {
		return raft.Server{}, err
	}
	last := n.raft.LastIndex()
	ctx, cancel := context.WithTimeout(ctx, standWithin)
	defer cancel()
	_ = flow.Fan(ctx, len(others), func(ctx context.Context, i int) error { // no leg fails
		addr, _ := splitAddress(others[i].Address)
		stand, err := n.deps.Stand(ctx, addr)
		others[i].judge(stand, err, last)
		return nil
	})
	var best *candidate
	var why []string
	for i, c := range others {
		switch {
		case c.bad != "":
			why = append(why, string(c.ID)+" "+c.bad)
		case best == nil || c.lag < best.lag:
			best = &others[i]
		}
	}
	if best != nil {
		return best.Server, nil
	}
	return raft.Server{}, fmt.Errorf("%w: %s", ErrNoTarget, strings.Join(why, "; "))
}

// candidates returns the voters that may be asked, at least one: the one named to, or all others.
func (n *Node) candidates(to string) (others []candidate, err error) {
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter && !n.isSelf(s.ID) && (to == "" || to == string(s.ID)) {
			others = append(others, candidate{Server: s})
		}
	}
	switch {
	case len(others) > 0:
		return others, nil
	case to == "":
		return nil, fmt.Errorf("%w: this node is the only voter", ErrNoTarget)
	case n.isSelf(raft.ServerID(to)):
		return nil, fmt.Errorf("%w: %s leads already", ErrNoTarget, to)
	case n.IsMember(to):
		return nil, fmt.Errorf("%w: %s has no vote", ErrNoTarget, to)
	}
	return nil, fmt.Errorf("%w: %s is no member", ErrNoTarget, to)
}

// judge records why the candidate cannot lead by its answer. last is the index of the last entry of
// this leader.
func (c *candidate) judge(s member.Stand, err error, last uint64) {
	if s.Applied < last {
		c.lag = last - s.Applied
	}
	switch {
	case err != nil:
		c.bad = "does not answer"
	case s.Unfit != "":
		c.bad = "is unfit: " + s.Unfit
	case c.lag > caughtUpLag:
		c.bad = fmt.Sprintf("lacks %d entries", c.lag)
	}
}

// resign transfers the leadership if this node is unfit. It returns "" or why the node stays, and
// logs that if it differs from stays, which it returned last.
func (n *Node) resign(ctx context.Context, stays string) string {
	unfit := n.unfit()
	if unfit == "" || !n.Leads() {
		return ""
	}
	_, err := n.Transfer(ctx, "", ReasonUnfit)
	if err == nil {
		return ""
	}
	if err.Error() != stays {
		n.log.Error("unfit_leader_stays", "unfit", unfit, "reason", err.Error(), "next",
			"mend what makes it unfit; `ronbox cluster status` says it of every member")
	}
	return err.Error()
}
