package member

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

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/peer"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	"ronbox/engines/edge/content"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/store"
)

// Name is the name of the service of the cluster. It is not among services: its tasks run
// before those of every engine, and end after the committer.
const Name = "cluster"

// nodeName names the logger of the node.
const nodeName = "node"

// DeclareBuckets declares the buckets of a cluster to a store.
func DeclareBuckets(s *store.Store) { s.Declare(Name, member.Buckets()...) }

// Node is the node as its part in the cluster uses it.
type Node interface {
	// Renew ends this life as a drain does, and begins the next one. Drain ends the process.
	Renew(by engines.Actor, corrID, reason string)
	Drain(by engines.Actor, corrID, reason string)
	// Quit sets whether the next deposition ends the process.
	Quit(quits bool)
	// Progress reports a long start.
	Progress(stage string, done, total int64)
	// Note appends an audit row. The action stands even if that fails.
	Note(ctx context.Context, e store.Event)
	// StandsBy reports whether this node does not lead, and Serves whether its engines have their
	// state.
	StandsBy() bool
	Serves() bool
	// FlushBalances writes changed balances.
	FlushBalances(ctx context.Context)
	// Copies reports whether a service answers reads from the copy of this member.
	Copies(service string) bool
}

// Front is the HTTP server of the node.
type Front interface {
	URL() string
	// PeerHandler returns a handler of requests that a member has forwarded. sender returns the id
	// of the member.
	PeerHandler(sender func(*http.Request) string) http.Handler
}

// Deps are the neighbours of a member.
type Deps struct {
	Node    Node
	Config  func() *config.Config // the current one
	Log     hclog.Logger
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Clock   *clock.Clock
	Machine func() time.Time           // the wall clock as the machine has it
	Median  *atomic.Pointer[time.Time] // origin of most clocks of the members; nil: not known
}

// Member is this node as a member of its cluster: the raft node, the peer port and the hellos.
type Member struct {
	d   Deps
	log hclog.Logger
	dir *member.Dir
	id  *peer.Identity

	joining *member.Joining // nil: the node is admitted; owned by Fetch, then by the hello task
	saved   string          // addresses of members that the directory has; owned by the hello task

	store   *store.Store // set by Attach, as are the next two
	front   Front
	opened  net.Listener     // peer port of an earlier life or of the service manager; may be nil
	row     store.Membership // of the file; set by Fetch
	raft    *cluster.Node    // set by Listen, before any task runs, as are the next seven
	ln      net.Listener
	bind    string // of ln; "": the service manager has opened it
	port    *peer.Port
	peers   *member.Server
	members *http.Server // of connections of members
	joins   *http.Server // of nodes that join
	client  *peer.Client
	leads   func() bool                       // raft leads
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

// Enroll completes what a verb of the cluster or the leader has begun, and returns the node as a
// member, or nil if it is alone. Attach is called next.
func Enroll(d Deps) (*Member, error) {
	cfg := d.Config()
	dir := member.At(cfg.Node.DataDir)
	found, err := dir.Finish()
	if err != nil || !found.Clustered {
		return nil, err
	}
	id, err := dir.Identity()
	if err != nil {
		return nil, err
	}
	was := id.Advertise()
	log := d.Log.Named(nodeName)
	if id, err = dir.Follow(id, cfg.Cluster.Advertise, cfg.Cluster.Bind); err != nil {
		log.Warn("address_not_saved", "reason", err.Error(), "next", "the next boot tries again")
	}
	if id.Advertise() != was {
		log.Info("address_changes", "from", was, "to", id.Advertise())
	}
	m := newMembership(d, dir, id)
	m.joining = found.Joining
	return m, nil
}

// Sketch returns a member for a topology, which is never run.
func Sketch(d Deps) (*Member, error) {
	id, err := peer.Found("member.example:7946", store.Schema, time.Now())
	if err != nil {
		return nil, err
	}
	return newMembership(d, member.At(d.Config().Node.DataDir), id), nil
}

func newMembership(d Deps, dir *member.Dir, id *peer.Identity) *Member {
	m := &Member{
		d: d, log: d.Log.Named(nodeName), dir: dir, begun: time.Now(),
		tick: flow.Every(d.Catalog, flow.Spec{
			Service: Name, Name: "hello_tick", Consumers: []string{"hello"}, Doc: "a word to the leader",
		}, time.Second),
	}
	m.id = id.WithClock(m.agreed)
	m.client = m.id.Client()
	m.leads = func() bool { return m.raft.Leads() }
	m.objects = newObjects(m)
	m.unreached.Store(new(string))
	return m
}

// Attach gives the member the store and the server of the node, which are built after it, and the
// peer port that an earlier life or the service manager has opened, or nil.
func (m *Member) Attach(s *store.Store, f Front, opened net.Listener) {
	m.store, m.front, m.opened = s, f, opened
}

// Fetch implements clusterMember of package server.
func (m *Member) Fetch(ctx context.Context) error {
	if m.joining != nil && !m.joining.Fetched {
		m.log.Info("fetches_file", "members", strings.Join(m.joining.Members, " "))
		if err := m.dir.FetchFile(ctx, member.FetchOptions{
			Log:      m.log,
			Progress: func(done, total int64) { m.d.Node.Progress("fetch", done, total) },
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

// Listen implements clusterMember of package server.
func (m *Member) Listen(ctx context.Context) error {
	if err := m.bindPort(ctx); err != nil {
		return process.CannotListen(fmt.Errorf("cluster.bind: %w", err))
	}
	if err := m.prepareObjects(); err != nil {
		m.log.Warn("objects", "reason", err.Error(), "effect", "this member takes no objects from the leader",
			"next", "look at the disk and the folder edge/cas, then restart the node")
	}
	m.kept.Store(m.dir.SavedURLs())
	m.wire()
	return nil
}

// wire builds the parts that use the peer port. It opens and starts nothing.
func (m *Member) wire() {
	m.port = peer.Listen(m.ln, m.id, peer.Options{Catalog: m.d.Catalog, Log: m.log, Member: m.isMember})
	m.raft = cluster.New(cluster.Deps{
		Log:        m.d.Log,
		Metrics:    m.d.Metrics,
		Catalog:    m.d.Catalog,
		Dir:        m.d.Config().Path("raft"),
		Port:       raftPort{m.port, m.id},
		Self:       m.id,
		Config:     m.d.Config().Cluster,
		Membership: m.row,
		Hold:       restsFor(os.Getenv(envDeposed), SinceMachineStart()) > 0,
		Earlier:    countedEndings(os.Getenv(envEnded)),
		Fit:        m.unfit,
		Stand:      m.stand,
		Resign:     m.resign,
		Origin:     m.d.Clock.Origin,
		Note:       m.note,
	})
	m.peers = member.NewServer(member.Deps{
		Identity: m.id,
		Store:    m.store,
		Cluster:  m.raft,
		Bundle:   m.bundle,
		Keys:     m.servingKeys,
		Shot:     m.shot,
		URL:      m.url,
		URLs:     m.urls,
		Now:      m.d.Machine,
		Note:     m.note,
		Log:      m.log,
	})
	own := http.NewServeMux()
	m.peers.Register(own)
	m.objects.Register(own)
	m.members = peer.NewServer(split(own, m.front.PeerHandler(m.sender)))
	m.joins = peer.NewJoinServer(m.peers.Join())
}

// Declare declares what the member declares once it listens, and returns its tasks. It opens
// nothing.
func (m *Member) Declare() []flow.Task {
	m.ln = nowhere{}
	m.wire()
	return m.Tasks()
}

// unfit returns why this node should not lead, or "". With firm set it must not: it would judge
// tokens wrongly. A full or slow node may, if no other leads.
func (m *Member) unfit() (why string, firm bool) {
	secret, err := tokens.ReadSecret(m.d.Config().Path(config.SecretName))
	if err == nil {
		err = m.store.View(context.Background(), func(r store.Reader) error {
			return tokens.CheckSecret(r, secret, m.store.Info().AuthEpoch)
		})
	}
	switch {
	case err != nil:
		return err.Error(), true
	case strings.Contains(m.differing(), config.SecretName):
		return config.SecretName + " is not that of the leader", true
	}
	if err = m.store.Health(); errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrSlow) {
		return err.Error(), false
	}
	return "", false
}

// shot returns a snapshot of the file for a node that joins.
func (m *Member) shot(ctx context.Context) (*member.Shot, error) {
	s, err := m.raft.Shot(ctx)
	if err != nil {
		return nil, err
	}
	return &member.Shot{Path: s.Manifest.Path, Size: s.Manifest.Size, B3: s.Manifest.B3, Remove: s.Remove}, nil
}

// bundle returns the secrets that all members share. With an error it returns those that it could
// read. A member may have no log key.
func (m *Member) bundle() (b member.Bundle, err error) {
	b.NodeKey, err = os.ReadFile(m.d.Config().Path(config.SecretName))
	logKey := m.d.Config().LogKeyPath()
	text, bad := os.ReadFile(logKey)
	if errors.Is(bad, fs.ErrNotExist) {
		return b, err
	}
	b.LogKey = text
	return b, errors.Join(err, bad)
}

// Start implements clusterMember of package server.
func (m *Member) Start(ctx context.Context, s *store.Store) error {
	if err := m.raft.Start(ctx, s); err != nil {
		return err
	}
	m.started.Store(true)
	return nil
}

// Objects returns the content stores of the other members.
func (m *Member) Objects() content.Members { return m.objects }

// Tasks implements clusterMember of package server.
func (m *Member) Tasks() []flow.Task {
	hello := flow.Task{
		Service: Name, Name: "hello", Restart: flow.Always, Run: m.runHello,
		Doc: "tells the leader the URL and the clock of this node, and asks it to admit one that joins",
	}
	all := append(m.raft.Tasks(), m.port.Tasks()...)
	return append(append(all, m.port.ServeTasks(m.members, m.joins)...), hello)
}

// Replicator implements clusterMember of package server.
func (m *Member) Replicator() store.Replicator { return lateReplicator{m} }

// lateReplicator is the replicator of a raft node that is wired after the store. The store asks it
// only after Start.
type lateReplicator struct{ m *Member }

func (r lateReplicator) Propose(ctx context.Context, e []byte) (store.Place, error) {
	return r.m.raft.Replicator().Propose(ctx, e)
}

func (r lateReplicator) Applied(at store.Place) { r.m.raft.Replicator().Applied(at) }

// Elected implements clusterMember of package server.
func (m *Member) Elected() <-chan struct{} { return m.raft.Elected() }

// Deposed implements clusterMember of package server. A node that has not started raft cannot be
// deposed.
func (m *Member) Deposed() <-chan struct{} {
	if m.raft == nil {
		return nil
	}
	return m.raft.Deposed()
}

// Reason implements clusterMember of package server. A node that has not started raft has no
// reason.
func (m *Member) Reason() (string, error) {
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

// Keep implements clusterMember of package server.
func (m *Member) Keep() (systemd.Socket, error) {
	l, ok := m.ln.(syscall.Conn)
	if !ok {
		return systemd.Socket{}, errors.ErrUnsupported
	}
	return systemd.Duplicate(systemd.PeerName, m.bind, l)
}

// Shutdown implements clusterMember of package server.
func (m *Member) Shutdown(ctx context.Context) error {
	if m.members == nil {
		return nil
	}
	return errors.Join(m.members.Shutdown(ctx), m.joins.Shutdown(ctx))
}

// Close implements clusterMember of package server.
func (m *Member) Close() error {
	m.client.CloseIdleConnections()
	if m.port == nil {
		return nil
	}
	return errors.Join(m.port.Close(), m.raft.Close())
}
