package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/appliance/peer"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

const (
	caughtUpLag   = 250 // entries; under load a follower is always some entries behind
	caughtUpFor   = 3 * time.Second
	changeTimeout = 30 * time.Second
	silentAfter   = 3 // heartbeats
)

var (
	// ErrQuorum is returned when a change would leave fewer healthy voters than a quorum needs.
	ErrQuorum = member.ErrQuorum
	// ErrUnknownMember is returned for an id that is not a member.
	ErrUnknownMember = errors.New("cluster: no such member")
	// ErrNotAlone is returned by MayLeaveLast while there are other members.
	ErrNotAlone = errors.New("cluster: other members remain")
)

// peers holds the states of the other members.
type peers struct {
	mu      sync.Mutex                  // a leaf
	known   map[string]*peerState       // by server id; guarded by mu
	strange map[raft.ServerAddress]bool // where a stranger answers; guarded by mu
	median  time.Time                   // origin of the last known median of the clocks; guarded by mu
}

// peerState describes one other member.
type peerState struct {
	last     uint64    // last index of its log, by its last answer to this leader
	ticket   uint64    // of the message that it answered last
	answered time.Time // of its last answer; zero: none
	caughtUp time.Time // since when it has been caught up; zero: it is not
	word     member.Word
	origin   time.Time // of its clock: what it showed when that of Deps.Origin began to count
	read     time.Time // when its clock was compared; zero: never
}

// of returns the state of a member. Called with mu held.
func (p *peers) of(id string) *peerState {
	s := p.known[id]
	if s == nil {
		s = &peerState{}
		p.known[id] = s
	}
	return s
}

// answered records the answer of a follower to the message with a ticket. Two messages to a
// follower may be under way at once.
func (p *peers) answered(id string, last, ticket uint64) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(id)
	s.last, s.answered = last, now
	s.ticket = max(s.ticket, ticket)
}

// state returns a copy of the state of a member.
func (p *peers) state(id string) peerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[id]; s != nil {
		return *s
	}
	return peerState{}
}

// caughtUp records whether a member is caught up now, and returns since when it has been.
func (p *peers) caughtUp(id string, is bool, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(id)
	switch {
	case !is:
		s.caughtUp = time.Time{}
	case s.caughtUp.IsZero():
		s.caughtUp = now
	}
	return s.caughtUp
}

// forgetOthers removes what is known of nodes that are not members.
func (p *peers) forgetOthers(c raft.Configuration) {
	members, at := map[string]bool{}, map[raft.ServerAddress]bool{}
	for _, s := range c.Servers {
		members[string(s.ID)], at[s.Address] = true, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.known {
		if !members[id] {
			delete(p.known, id)
		}
	}
	if len(members) < 2 {
		p.median = time.Time{}
	}
	maps.DeleteFunc(p.strange, func(addr raft.ServerAddress, _ bool) bool { return !at[addr] })
}

// met records whether a node of another cluster answers at the address of a member, and reports
// whether that is new.
func (p *peers) met(at raft.ServerAddress, stranger bool) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = p.strange[at] != stranger
	p.strange[at] = stranger
	return news
}

// isStrange reports whether a node of another cluster answers at an address.
func (p *peers) isStrange(at raft.ServerAddress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.strange[at]
}

// dialed records the result of a dial of a member. It logs when a node of another cluster begins to
// answer at its address.
func (n *Node) dialed(at raft.ServerAddress, err error) {
	stranger := errors.Is(err, peer.ErrStranger)
	if n.peers.met(at, stranger) && stranger {
		n.log.Warn("member_of_another_cluster", "peer_addr", string(at), "error", err.Error(),
			"next", "if it was recovered, there are two clusters: see `ronbox cluster recover --help`")
	}
}

// Heard records the word of another member. An empty URL keeps the last one.
func (n *Node) Heard(id string, w member.Word) {
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	s := n.peers.of(id)
	w.URL = cmp.Or(w.URL, s.word.URL)
	s.word = w
}

// Unfit returns why this node should not lead, "" if it may. It does not block.
func (n *Node) Unfit() string {
	if !n.serving.Load() {
		return ""
	}
	return n.unfit()
}

// Members returns the addresses of the peer ports of all members.
func (n *Node) Members() []string {
	var out []string
	for _, s := range n.servers() {
		addr, _ := splitAddress(s.Address)
		out = append(out, addr)
	}
	return out
}

// Address returns the address of the peer port of a member, "" for another node.
func (n *Node) Address(id string) string {
	s, _ := n.member(id)
	addr, _ := splitAddress(s.Address)
	return addr
}

// Standby reports whether a member stays without a vote.
func (n *Node) Standby(id string) bool {
	s, ok := n.member(id)
	_, standby := splitAddress(s.Address)
	return ok && standby
}

// IsMember reports whether id is in the latest configuration.
func (n *Node) IsMember(id string) bool {
	_, ok := n.member(id)
	return ok
}

// member returns the entry of id in the latest configuration.
func (n *Node) member(id string) (raft.Server, bool) {
	for _, s := range n.servers() {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// Admit adds a node as a member without a vote. It gets a vote once it has been caught up for 3 s,
// unless standby is true. It returns [store.ErrNotLeader] if this node does not lead. A member that
// is admitted again keeps its role; only its address changes.
func (n *Node) Admit(ctx context.Context, id, addr string, standby bool) error {
	return n.change(ctx, "admit "+id, func() raft.IndexFuture {
		s, ok := n.member(id)
		if !ok {
			return n.raft.AddNonvoter(raft.ServerID(id), joinAddress(addr, standby), 0, changeTimeout)
		}
		was, standby := splitAddress(s.Address)
		switch {
		case was == addr:
			return unchanged{}
		case s.Suffrage == raft.Voter:
			return n.raft.AddVoter(s.ID, joinAddress(addr, standby), 0, changeTimeout)
		}
		return n.raft.AddNonvoter(s.ID, joinAddress(addr, standby), 0, changeTimeout)
	})
}

// unchanged is the result of a change that is not needed.
type unchanged struct{}

// Error implements raft.Future.
func (unchanged) Error() error { return nil }

// Index implements raft.IndexFuture.
func (unchanged) Index() uint64 { return 0 }

// Remove removes a member. It returns ErrQuorum if the voters that remain and answer now are no
// quorum of those that remain, ErrUnknownMember if id is not a member, and [store.ErrNotLeader] if
// this node does not lead. It waits for one heartbeat at most for a voter that does not answer.
func (n *Node) Remove(ctx context.Context, id string) error {
	if !n.Leads() {
		return store.ErrNotLeader
	}
	if !n.IsMember(id) {
		return fmt.Errorf("%w: %s", ErrUnknownMember, id)
	}
	voters, answering, err := n.poll(ctx, id)
	if err != nil {
		return err
	}
	if answering < voters/2+1 {
		return fmt.Errorf("%w: %d of %d voters answer", ErrQuorum, answering, voters)
	}
	return n.change(ctx, "remove "+id, func() raft.IndexFuture {
		return n.raft.RemoveServer(raft.ServerID(id), 0, changeTimeout)
	})
}

// poll counts the voters other than id, and those among them that answer a message of this leader
// that was sent after poll began. It waits for all of them, at most for one heartbeat.
func (n *Node) poll(ctx context.Context, id string) (voters, answering int, err error) {
	ticket := n.tickets.Add(1)
	begun := time.Now()
	for {
		voters, answering = n.answersSince(ticket, id)
		if answering == voters || time.Since(begun) >= n.heartbeat() {
			return voters, answering, nil
		}
		again := time.NewTimer(n.heartbeat() / 20)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return voters, answering, context.Cause(ctx)
		}
	}
}

// answersSince counts the voters other than id, and those among them that have answered a message
// with a later ticket. This node counts as one.
func (n *Node) answersSince(ticket uint64, id string) (voters, answering int) {
	for _, s := range n.servers() {
		if s.Suffrage != raft.Voter || string(s.ID) == id {
			continue
		}
		voters++
		if n.isSelf(s.ID) || n.peers.state(string(s.ID)).ticket > ticket {
			answering++
		}
	}
	return voters, answering
}

// MayLeaveLast returns nil if this node leads and is the only member: the file may become that of a
// node alone.
func (n *Node) MayLeaveLast() error {
	if others := len(n.servers()) - 1; others > 0 {
		return fmt.Errorf("%w: %d", ErrNotAlone, others)
	}
	if !n.Leads() {
		return store.ErrNotLeader
	}
	return nil
}

// change makes one change of the configuration and waits until it is committed, at most until ctx
// ends. The change may still happen after an error of ctx.
func (n *Node) change(ctx context.Context, name string, make func() raft.IndexFuture) error {
	if !n.Leads() {
		return store.ErrNotLeader
	}
	if n.transfers.Len() > 0 {
		return errTransferring
	}
	_, err := n.changes.Do(ctx, name, struct{}{}, changeTimeout, func(context.Context) (struct{}, error) {
		return struct{}{}, make().Error()
	})
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return store.ErrNotLeader
	case err != nil:
		return fmt.Errorf("cluster: %s: %w", name, err)
	}
	return nil
}

// runStabiliser gives votes to members that wait for one and have been caught up long enough. It
// also bounds the log and asks Deps.Fit, which the watchdog must not: the disk may hang.
func (n *Node) runStabiliser(ctx context.Context) error {
	defer n.promote.Stop()
	for {
		if n.deps.Fit != nil {
			why, firm := n.deps.Fit()
			n.judged.Store(&verdict{why, firm})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.promote.C():
		}
		n.boundLog()
		if n.Leads() {
			n.promoteCaughtUp(ctx, time.Now())
		}
	}
}

// promoteCaughtUp makes at most one member a voter.
func (n *Node) promoteCaughtUp(ctx context.Context, now time.Time) {
	for _, s := range n.servers() {
		addr, standby := splitAddress(s.Address)
		if s.Suffrage == raft.Voter || standby {
			continue
		}
		m := n.describe(s, now)
		since := n.peers.caughtUp(m.ID, m.Answers && m.Lag <= caughtUpLag, now)
		if since.IsZero() || now.Sub(since) < caughtUpFor {
			continue
		}
		err := n.change(ctx, "promote "+m.ID, func() raft.IndexFuture {
			return n.raft.AddVoter(s.ID, raft.ServerAddress(addr), 0, changeTimeout)
		})
		n.log.Info("promoted", "member", m.ID, "error", err)
		if err == nil && n.deps.Note != nil {
			n.deps.Note(ctx, "cluster.promoted", map[string]string{"server": m.ID})
		}
		return
	}
}
