package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/store"
)

// clusterName is the name of the service of the cluster. It is not among services: its tasks run
// before those of every engine, and end after the committer.
const clusterName = "cluster"

// membership is this node as a member of its cluster: the raft node, the peer port and the hellos.
// It implements clusterMember.
type membership struct {
	n   *Node
	dir *member.Dir
	id  *peer.Identity

	joining *member.Joining // nil: the node is admitted; owned by Fetch, then by the hello task
	saved   string          // addresses of members that the directory has; owned by the hello task

	row     store.Membership // of the file; set by Fetch
	raft    *cluster.Node    // set by Listen, before any task runs, as are the next seven
	ln      net.Listener
	bind    string // of ln; "": the service manager has opened it
	port    *peer.Port
	peers   *member.Server
	members *http.Server // of connections of members
	joins   *http.Server // of nodes that join
	client  *peer.Client
	objects *edgeapi.Objects                  // of the edge
	started atomic.Bool                       // raft runs
	removed atomic.Bool                       // the leader has said so
	keysOf  atomic.Pointer[member.KeyDigests] // of the last leader that has answered
	kept    atomic.Value                      // map[string]string: URLs of members that the directory has
	told    string                            // differing, as logged last; owned by the hello task
	noted   bool                              // the election, on the audit chain; owned by the hello task
	begun   time.Time                         // this life
	// the last try to renew the certificate that has failed; owned by the hello task
	unrenewed time.Time
	tick      *flow.Ticker
	// why the leader does not reach this node at its address, "" if it does
	unreached atomic.Pointer[string]
}

// enroll makes the node a member if its directory is that of one.
func (n *Node) enroll() {
	if n.opt.enroll != nil {
		n.member = n.opt.enroll(n)
		return
	}
	if !n.opt.clustered {
		return
	}
	m, err := finishCluster(n)
	n.unfit = err
	if m != nil {
		n.member = m
	}
}

// finishCluster completes what a verb of the cluster or the leader has begun, and returns the node
// as a member, or nil if it is alone.
func finishCluster(n *Node) (*membership, error) {
	dir := member.At(n.boot.Node.DataDir)
	found, err := dir.Finish()
	if err != nil || !found.Clustered {
		return nil, err
	}
	id, err := dir.Identity()
	if err != nil {
		return nil, err
	}
	was := id.Advertise()
	if id, err = dir.Follow(id, n.boot.Cluster.Advertise, n.boot.Cluster.Bind); err != nil {
		n.log.Warn("address_not_saved", "reason", err.Error(), "next", "the next boot tries again")
	}
	if id.Advertise() != was {
		n.log.Info("address_changes", "from", was, "to", id.Advertise())
	}
	m := newMembership(n, dir, id)
	m.joining = found.Joining
	return m, nil
}

func newMembership(n *Node, dir *member.Dir, id *peer.Identity) *membership {
	m := &membership{
		n: n, dir: dir, begun: time.Now(),
		tick: flow.Every(n.catalog, flow.Spec{
			Service: clusterName, Name: "hello_tick", Consumers: []string{"hello"}, Doc: "a word to the leader",
		}, time.Second),
	}
	m.id = id.WithClock(m.agreed)
	m.client = m.id.Client()
	m.objects = newObjects(m)
	m.unreached.Store(new(string))
	return m
}

// Fetch implements clusterMember.
func (m *membership) Fetch(ctx context.Context) error {
	if m.joining != nil && !m.joining.Fetched {
		m.n.log.Info("fetches_file", "members", strings.Join(m.joining.Members, " "))
		if err := m.dir.FetchFile(ctx, member.FetchOptions{
			Log:      m.n.log,
			Progress: func(done, total int64) { m.n.bootProgress("fetch", done, total) },
		}); err != nil {
			return err
		}
	}
	row, err := store.ReadMembership(m.dir.Database())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Open names what is missing
	}
	if err == nil && row == nil {
		err = fmt.Errorf("%w: the file belongs to no cluster, the directory to %s", store.ErrCorrupt, m.id.ClusterID())
	}
	if err != nil {
		return err
	}
	m.row = *row
	return nil
}

// Listen implements clusterMember.
func (m *membership) Listen(ctx context.Context) error {
	if err := m.bindPort(ctx); err != nil {
		return process.CannotListen(fmt.Errorf("cluster.bind: %w", err))
	}
	if err := m.prepareObjects(); err != nil {
		m.n.log.Warn("objects", "reason", err.Error(), "effect", "this member takes no objects from the leader",
			"next", "look at the disk and the folder edge/cas, then restart the node")
	}
	m.kept.Store(m.dir.SavedURLs())
	m.wire()
	return nil
}

// wire builds the parts that use the peer port. It opens and starts nothing.
func (m *membership) wire() {
	m.port = peer.Listen(m.ln, m.id, peer.Options{Catalog: m.n.catalog, Log: m.n.log, Member: m.isMember})
	m.raft = cluster.New(cluster.Deps{
		Log:        m.n.levels.Logger(),
		Metrics:    m.n.metrics,
		Catalog:    m.n.catalog,
		Dir:        m.n.boot.Path("raft"),
		Port:       raftPort{m.port, m.id},
		Self:       m.id,
		Config:     m.n.boot.Cluster,
		Membership: m.row,
		Hold:       restsFor(os.Getenv(envDeposed), sinceMachineStart()) > 0,
		Earlier:    countedEndings(os.Getenv(envEnded)),
		Fit:        m.unfit,
		Stand:      m.stand,
		Resign:     m.resign,
		Origin:     m.n.clock.Origin,
		Note:       m.note,
	})
	m.peers = member.NewServer(member.Deps{
		Identity: m.id,
		Store:    m.n.store,
		Cluster:  m.raft,
		Bundle:   m.n.bundle,
		Keys:     m.servingKeys,
		Shot:     m.shot,
		URL:      m.url,
		URLs:     m.urls,
		Now:      m.n.machine,
		Note:     m.note,
		Log:      m.n.log,
	})
	own := http.NewServeMux()
	m.peers.Register(own)
	m.objects.Register(own)
	m.members = peer.NewServer(split(own, m.n.server.PeerHandler(m.sender)))
	m.joins = peer.NewJoinServer(m.peers.Join())
}

// bindPort binds cluster.bind, or takes the socket that an earlier life or the service manager has
// opened.
func (m *membership) bindPort(ctx context.Context) (err error) {
	m.bind = m.n.boot.Cluster.Bind
	switch l := m.n.opt.inherited[systemd.PeerName].(type) {
	case *systemd.Kept:
		if l.Bind == m.bind {
			m.ln = l.Listener
			return nil
		}
		if err := l.Close(); err != nil {
			return err
		}
	case net.Listener:
		m.bind, m.ln = "", l
		return nil
	}
	var lc net.ListenConfig
	m.ln, err = lc.Listen(ctx, "tcp", m.bind)
	return err
}

// split returns a handler of the peer port. Only requests that this node's peers have not forwarded
// for a client reach own: a client must not speak as the node that forwards for it.
func split(own, forwarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpapi.Relayed(r) {
			forwarded.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// sender returns the id of the member that has sent r, or "". A node that was removed keeps its
// certificate, and would speak for its root. The leader knows every member that has a leader.
func (m *membership) sender(r *http.Request) string {
	if id := peer.PeerID(r); m.raft.IsMember(id) {
		return id
	}
	return ""
}

// raftPort is the peer port as raft uses it.
type raftPort struct {
	*peer.Port
	id *peer.Identity
}

// Dial implements cluster.Peers.
func (p raftPort) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return p.id.Dial(ctx, addr, peer.ProtoRaft)
}

// isMember reports whether a node may open raft connections. Only the list of a leader is new: one
// that was away may not know the member that leads now.
func (m *membership) isMember(id string) bool {
	return !m.started.Load() || !m.raft.Leads() || m.raft.IsMember(id)
}

// unfit returns why this node should not lead, or "". With firm set it must not: it would judge
// tokens wrongly. A full or slow node may, if no other leads.
func (m *membership) unfit() (why string, firm bool) {
	secret, err := tokens.ReadSecret(m.n.boot.Path(config.SecretName))
	if err == nil {
		err = m.n.store.View(context.Background(), func(r store.Reader) error {
			return tokens.CheckSecret(r, secret, m.n.store.Info().AuthEpoch)
		})
	}
	switch {
	case err != nil:
		return err.Error(), true
	case strings.Contains(m.differing(), config.SecretName):
		return config.SecretName + " is not that of the leader", true
	}
	if err = m.n.store.Health(); errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrSlow) {
		return err.Error(), false
	}
	return "", false
}

// shot returns a snapshot of the file for a node that joins.
func (m *membership) shot(ctx context.Context) (*member.Shot, error) {
	s, err := m.raft.Shot(ctx)
	if err != nil {
		return nil, err
	}
	return &member.Shot{Path: s.Manifest.Path, Size: s.Manifest.Size, B3: s.Manifest.B3, Remove: s.Remove}, nil
}

// bundle returns the secrets that all members share. With an error it returns those that it could
// read. A member may have no log key.
func (n *Node) bundle() (b member.Bundle, err error) {
	b.NodeKey, err = os.ReadFile(n.boot.Path(config.SecretName))
	logKey := n.boot.LogKeyPath()
	text, bad := os.ReadFile(logKey)
	if errors.Is(bad, fs.ErrNotExist) {
		return b, err
	}
	b.LogKey = text
	return b, errors.Join(err, bad)
}

// Start implements clusterMember.
func (m *membership) Start(ctx context.Context, s *store.Store) error {
	if err := m.raft.Start(ctx, s); err != nil {
		return err
	}
	m.started.Store(true)
	return nil
}

// Tasks implements clusterMember.
func (m *membership) Tasks() []flow.Task {
	hello := flow.Task{
		Service: clusterName, Name: "hello", Restart: flow.Always, Run: m.runHello,
		Doc: "tells the leader the URL and the clock of this node, and asks it to admit one that joins",
	}
	all := append(m.raft.Tasks(), m.port.Tasks()...)
	return append(append(all, m.port.ServeTasks(m.members, m.joins)...), hello)
}

// Replicator implements clusterMember.
func (m *membership) Replicator() store.Replicator { return lateReplicator{m} }

// lateReplicator is the replicator of a raft node that is wired after the store. The store asks it
// only after Start.
type lateReplicator struct{ m *membership }

func (r lateReplicator) Propose(ctx context.Context, e []byte) (store.Place, error) {
	return r.m.raft.Replicator().Propose(ctx, e)
}

func (r lateReplicator) Applied(at store.Place) { r.m.raft.Replicator().Applied(at) }

// Elected implements clusterMember.
func (m *membership) Elected() <-chan struct{} { return m.raft.Elected() }

// Deposed implements clusterMember. A node that has not started raft cannot be deposed.
func (m *membership) Deposed() <-chan struct{} {
	if m.raft == nil {
		return nil
	}
	return m.raft.Deposed()
}

// Reason implements clusterMember. A node that has not started raft has no reason.
func (m *membership) Reason() (string, error) {
	if m.raft == nil {
		return "", nil
	}
	why, err := m.raft.Reason()
	if why != cluster.ReasonFailed {
		return string(why), nil
	}
	if err == nil {
		err = store.ErrPoisoned
	}
	return string(why), err
}

// Keep implements clusterMember.
func (m *membership) Keep() (systemd.Socket, error) {
	l, ok := m.ln.(syscall.Conn)
	if !ok {
		return systemd.Socket{}, errors.ErrUnsupported
	}
	return systemd.Duplicate(systemd.PeerName, m.bind, l)
}

// Shutdown implements clusterMember.
func (m *membership) Shutdown(ctx context.Context) error {
	if m.members == nil {
		return nil
	}
	return errors.Join(m.members.Shutdown(ctx), m.joins.Shutdown(ctx))
}

// Close implements clusterMember.
func (m *membership) Close() error {
	m.client.CloseIdleConnections()
	if m.port == nil {
		return nil
	}
	return errors.Join(m.port.Close(), m.raft.Close())
}
