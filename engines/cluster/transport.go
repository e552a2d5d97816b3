package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Peers is the peer port. Its connections are authenticated both ways and have exchanged a hello.
type Peers interface {
	Raft() net.Listener
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// streams implements raft.StreamLayer over the peer port. It closes every connection when it
// closes: raft leaves those open that wait for a message.
type streams struct {
	port   Peers
	ln     net.Listener
	addr   advertised
	dialed func(to raft.ServerAddress, err error) // is told of each dial
	ctx    context.Context                        // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex       // a leaf
	closed bool             // guarded by mu
	open   map[*stream]bool // guarded by mu
}

func newStreams(port Peers, advertise string, dialed func(to raft.ServerAddress, err error)) *streams {
	ctx, cancel := context.WithCancel(context.Background())
	return &streams{
		port:   port,
		ln:     port.Raft(),
		addr:   advertised(advertise),
		dialed: dialed,
		ctx:    ctx,
		cancel: cancel,
		open:   map[*stream]bool{},
	}
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.ln.Accept()
	if err != nil {
		return nil, err
	}
	return s.keep(c)
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, stop := context.WithTimeout(s.ctx, timeout)
	defer stop()
	addr, _ := splitAddress(to)
	c, err := s.port.Dial(ctx, addr)
	s.dialed(to, err)
	if err != nil {
		return nil, err
	}
	return s.keep(c)
}

// Addr implements net.Listener. It returns the address for other members.
func (s *streams) Addr() net.Addr { return s.addr }

// Close implements net.Listener.
func (s *streams) Close() error {
	s.mu.Lock()
	open := s.open
	s.open = map[*stream]bool{}
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.cancel()
	err := s.ln.Close()
	for c := range open {
		_ = c.Conn.Close() // it fails if the other member has closed it first
	}
	return ignoreClosed(err)
}

// keep adds a connection to those that Close closes.
func (s *streams) keep(c net.Conn) (net.Conn, error) {
	kept := &stream{Conn: c, of: s}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.open[kept] = true
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	return kept, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// stream is one connection.
type stream struct {
	net.Conn
	of *streams
}

// Close implements net.Conn.
func (c *stream) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// advertised is the address of this node for other members.
type advertised string

// Network implements net.Addr.
func (advertised) Network() string { return "tcp" }

func (a advertised) String() string { return string(a) }

// standbyMark ends the raft address of a member that must stay without a vote. It is replicated
// with the configuration, so that every later leader knows it.
const standbyMark = "#standby"

// joinAddress returns the raft address of a member.
func joinAddress(addr string, standby bool) raft.ServerAddress {
	if standby {
		addr += standbyMark
	}
	return raft.ServerAddress(addr)
}

// splitAddress returns the address to dial, and whether the member must stay without a vote.
func splitAddress(a raft.ServerAddress) (addr string, standby bool) {
	return strings.CutSuffix(string(a), standbyMark)
}

// transport is raft's transport. It reports the answers of followers, which raft keeps to itself,
// and keeps an unfit node from being elected: it asks no other node for its vote. A longer election
// timeout would not do, because a follower refuses its vote until it misses the leader.
type transport struct {
	*raft.NetworkTransport
	ticket   func() uint64 // returns a larger number at each call
	answered func(id string, last, ticket uint64)
	unfit    func() string
}

// newTransport returns the transport of the node over s.
func (n *Node) newTransport(s *streams) *transport {
	return &transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Logger:                  n.raftLog("net"),
			Stream:                  s,
			MaxPool:                 connsPerPeer,
			MaxRPCsInFlight:         rpcsInFlight,
			Timeout:                 n.rpcTimeout(),
			MsgpackUseNewTimeFormat: true,
		}),
		ticket:   func() uint64 { return n.tickets.Add(1) },
		answered: n.peers.answered,
		unfit:    n.unfit,
	}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	args.Entries = bounds(args.Entries, sentBytes)
	ticket := t.ticket()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	switch {
	case err != nil:
		return err
	case resp.Success:
		t.answered(string(id), resp.LastLog, ticket)
	case len(args.Entries) > 0 && resp.Term <= args.Term && !resp.NoRetryBackoff:
		return errNotStored
	}
	return nil
}

// bounds returns the first entries that have no more than most bytes together, at least one. Raft
// counts what args then has, and sends the rest next: of sixteen of the largest entries none would
// arrive within the time limit of a message, and a follower would hold thousands of them at once.
func bounds(entries []*raft.Log, most int) []*raft.Log {
	size := 0
	for i, e := range entries {
		if size += len(e.Data); size > most && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

// errNotStored replaces the answer of a follower that has the entries before and could not store
// the new ones. Raft would send it earlier and earlier entries, and then the file, again and again.
var errNotStored = errors.New("the follower could not store the entries")

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse,
) error {
	if why := t.unfit(); why != "" {
		return fmt.Errorf("this node does not stand for election: %s", why)
	}
	return t.NetworkTransport.RequestPreVote(id, target, args, resp)
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse,
) error {
	if why := t.unfit(); why != "" {
		return fmt.Errorf("this node does not stand for election: %s", why)
	}
	return t.NetworkTransport.RequestVote(id, target, args, resp)
}

// TimeoutNow implements raft.Transport. It asks again while the connections are those of an earlier
// life of the target.
func (t *transport) TimeoutNow(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse,
) (err error) {
	for range connsPerPeer + 1 {
		err = t.NetworkTransport.TimeoutNow(id, target, args, resp)
		var late net.Error
		if err == nil || errors.As(err, &late) && late.Timeout() {
			break
		}
	}
	return err
}
