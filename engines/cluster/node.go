package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

const service = "cluster"

// errClosed is returned while the node closes.
var errClosed = errors.New("cluster: the node is closing")

// Self is the identity of the node.
type Self interface {
	ServerID() string
	Advertise() string   // address of the peer port for other members
	NotAfter() time.Time // end of its certificate
}

// Store is the part of [store.Store] that the node uses.
type Store interface {
	Applied() store.Applied
	KeepMembers(index uint64, raw []byte)
	Follow(ctx context.Context, es []store.Placed) error
	BindLog(ctx context.Context, id []byte) error
	Lead() error
	HoldsCopy() error
	Snapshot(
		ctx context.Context,
		dir string,
		o store.SnapshotOptions,
		progress func(done, total int64),
	) (store.Manifest, error)
}

// Deps are the dependencies of a Node.
type Deps struct {
	Log     hclog.Logger
	Metrics *obs.Metrics
	Catalog *flow.Catalog
	Dir     string // folder of the log and the vote: <data>/raft
	Port    Peers
	Self    Self
	Config  Config

	Membership store.Membership // of the file, read before the store was opened
	Hold       bool             // by its last lives the node does not stand for a minute while another leads
	Earlier    map[Reason]int   // how often lives of this process have ended for a reason; may be nil
	// Fit returns why the node should not lead, "" if it may. With firm set it must not even if no
	// other node leads. The stabiliser calls it twice a second. It may read the disk, and may be
	// nil.
	Fit func() (why string, firm bool)
	// Stand asks the member at an address how it stands.
	Stand func(ctx context.Context, addr string) (member.Stand, error)
	// Resign is called before the leadership goes to another member, while the node can write. It
	// is called again with an error if the node leads on. It may be nil.
	Resign func(ctx context.Context, to string, why Reason, failed error)
	// Origin returns the wall clock of the node minus the time since a fixed moment: it changes
	// only when the wall clock is set. It does not block.
	Origin func() time.Time
	// Note appends an audit row about a change that this leader has made. It may be nil.
	Note func(ctx context.Context, event string, detail map[string]string)
}

// Reason is the reason why a life of the node ends.
type Reason string

// The reasons. After ReasonFailed the process must exit. After the others it executes itself again.
const (
	ReasonLost      Reason = "lost"      // it led and does not lead any more
	ReasonLease     Reason = "lease"     // it led, and a quorum has not answered in time
	ReasonAsked     Reason = "asked"     // it has transferred the leadership because it was told to,
	ReasonDrain     Reason = "drain"     // because it stops,
	ReasonUnfit     Reason = "unfit"     // or because it was unfit
	ReasonForeign   Reason = "foreign"   // it leads, and an entry that it did not propose has a quorum
	ReasonHung      Reason = "hung"      // a write of the log or a commit takes longer than 5 s
	ReasonInstalled Reason = "installed" // the leader has sent the file, which the next boot opens
	ReasonFailed    Reason = "failed"    // the log or the store has failed
)

// ending is the end of a life.
type ending struct {
	reason Reason
	err    error // may be nil
}

// Node is the member of a cluster that this process is. It is safe for concurrent use.
type Node struct {
	deps    Deps
	log     hclog.Logger
	metrics *metrics
	nonce   func([]byte) ([16]byte, bool)
	check   func([]byte) error // of an entry that was read
	segment int                // bytes of a segment of the log
	mostLog int64              // bytes of the log
	tune    func(*raft.Config) // changes the configuration; set by tests
	wrap    func(wal) wal      // wraps the log; set by tests

	store   Store                 // set by Start
	raft    *raft.Raft            // set by Start
	latch   *latch                // set by Start
	streams *streams              // set by Start
	usual   raft.ReloadableConfig // of raft while its log is within its bound; set by Start

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing chan struct{}
	once    sync.Once // closes

	serving atomic.Bool // Start has succeeded
	ending  atomic.Pointer[ending]
	deposed chan struct{} // closed when ending is set
	reign   atomic.Pointer[reign]
	office  atomic.Bool   // store.Lead was called; never reset
	elected chan struct{} // closed after store.Lead has returned
	wake    chan struct{} // wakes the task leadership
	pending atomic.Pointer[proposal]
	gate    chan struct{}                 // full while a group is proposed, or the leadership is transferred
	leaving atomic.Pointer[Reason]        // why the leadership is about to go to another member; nil: it is not
	latest  atomic.Pointer[configuration] // the latest committed one
	backlog *backlog
	stalled atomic.Pointer[error]   // why the file does not take entries
	judged  atomic.Pointer[verdict] // what Deps.Fit has returned last; nil: nothing yet
	commits stopwatch               // of the FSM: a group of this node, or entries of the leader

	tickets atomic.Uint64 // orders messages to followers and rounds
	rounds  rounds
	peers   peers
	changes *flow.Flight[string, struct{}, struct{}]

	transfers *flow.Flight[string, struct{}, Transferred] // at most one
	watch     *flow.Ticker
	promote   *flow.Ticker
	begun     time.Time // of raft: a boot may take long
}

// New returns a node that is not started. It declares its tasks' tickers and metrics.
func New(d Deps) *Node {
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		deps:    d,
		log:     d.Log.Named(service),
		nonce:   store.EntryNonce,
		check:   store.CheckEntry,
		segment: raftwal.DefaultSegmentSize,
		mostLog: mostLog,
		tune:    func(*raft.Config) {},
		wrap:    func(w wal) wal { return w },
		ctx:     ctx,
		cancel:  cancel,
		closing: make(chan struct{}),
		deposed: make(chan struct{}),
		elected: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		gate:    make(chan struct{}, 1),
		begun:   time.Now(),
	}
	n.latest.Store(&configuration{d.Membership.Index, d.Membership.Raw})
	n.rounds.wake = make(chan struct{}, 1)
	n.peers.known, n.peers.strange = map[string]*peerState{}, map[raft.ServerAddress]bool{}
	n.backlog = newBacklog(d.Catalog)
	n.metrics = newMetrics(d.Metrics, n)
	n.changes = flow.NewFlight[string, struct{}, struct{}](d.Catalog, flow.FlightSpec{
		Service: service, Name: "change", Waiters: 16, Calls: 16,
	})
	n.transfers = flow.NewFlight[string, struct{}, Transferred](d.Catalog, flow.FlightSpec{
		Service: service, Name: "transfer", Calls: 1,
	})
	tick := func(name, task, doc string) *flow.Ticker {
		return flow.Every(d.Catalog, flow.Spec{
			Service: service, Name: name, Consumers: []string{task}, Doc: doc,
		}, watchEvery)
	}
	n.watch = tick("watch_tick", taskWatchdog, "hung writes, silent members, and changes of fitness")
	n.promote = tick("promote_tick", taskStabiliser, "members that wait for a vote, size of the log, and fitness")
	return n
}

// Tasks lists the tasks of the node. They run after Start and end before Close.
func (n *Node) Tasks() []flow.Task {
	task := func(name, doc string, run func(context.Context) error) flow.Task {
		return flow.Task{Service: service, Name: name, Restart: flow.Always, Doc: doc, Run: run}
	}
	follower := task(taskFollower, "writes the entries of another leader to the file", n.runFollower)
	follower.Restart = flow.Never // what it has taken from the queue would be missing
	return []flow.Task{
		follower,
		task(taskLeadership, "takes office after an election, and resigns while this node is unfit", n.runLeadership),
		task(taskConfirmer, "asks a quorum whether this node still leads, once for all readers", n.runConfirmer),
		task(taskStabiliser, "makes voters, bounds the log, and judges whether this node may lead", n.runStabiliser),
		task(taskWatchdog, "ends the life of a hung node, and makes an unfit leader resign", n.runWatchdog),
	}
}

// Start applies the boot rules and starts raft. The store is prepared and its committer runs. The
// log goes on at once: entries are in the backlog before Start returns. An error that is
// [store.ErrCorrupt] names the repair.
func (n *Node) Start(_ context.Context, s *store.Store) error { return n.start(s) }

func (n *Node) start(s Store) (err error) {
	n.store = s
	partial := (&sink{n: n}).partial()
	if err = errors.Join(os.RemoveAll(n.shots()), removeAll(partial, partial+manifestSuffix)); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	w, err := n.openLog()
	if err != nil {
		return err
	}
	n.latch = &latch{
		wal: n.wrap(w), intake: n.intake, check: n.check, failed: func(err error) { n.end(ReasonFailed, err) },
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.latch.wal.Close())
		}
	}()
	if err = n.applyBootRules(n.ctx, s.Applied()); err != nil {
		return err
	}
	if err = n.startRaft(); err != nil {
		return err
	}
	n.latch.running.Store(true)
	n.serving.Store(true)
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.observe))
	if state := n.raft.State(); state == raft.Leader { // elected before the observer was there
		n.turn(state)
	}
	return nil
}

// startRaft starts raft and its transport.
func (n *Node) startRaft() (err error) {
	cache, err := raft.NewLogCache(cachedEntries, n.latch)
	if err != nil {
		return err
	}
	n.streams = newStreams(n.deps.Port, n.deps.Self.Advertise(), n.dialed)
	trans := n.newTransport(n.streams)
	n.begun = time.Now()
	n.raft, err = n.newRaft(monotonic{cache}, trans)
	if err != nil {
		return errors.Join(fmt.Errorf("cluster: %w", err), trans.Close())
	}
	n.usual = n.raft.ReloadableConfig()
	return nil
}

// newRaft starts raft, which panics if it cannot read its log.
func (n *Node) newRaft(log raft.LogStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", store.ErrCorrupt, v)
		}
	}()
	return raft.NewRaft(n.raftConfig(), &fsm{n}, log, n.latch, &snapshots{n}, t)
}

// Elected is closed once: this node leads and its file has every entry of earlier leaders. Engines
// may recover.
func (n *Node) Elected() <-chan struct{} { return n.elected }

// Deposed is closed once the life of this node must end. Reason returns why.
func (n *Node) Deposed() <-chan struct{} { return n.deposed }

// Reason returns why the life must end, with an error that may be nil. It returns "" before Deposed
// is closed.
func (n *Node) Reason() (Reason, error) {
	if e := n.ending.Load(); e != nil {
		return e.reason, e.err
	}
	return "", nil
}

// end ends the life. The first reason counts.
func (n *Node) end(why Reason, err error) {
	if !n.ending.CompareAndSwap(nil, &ending{why, err}) {
		return
	}
	n.log.Warn("life_ends", "reason", string(why), "error", err)
	close(n.deposed)
}

// over reports whether the life must end.
func (n *Node) over() bool { return n.ending.Load() != nil }

// Close stops raft and closes the log. The tasks and the committer have ended: raft does not answer
// calls that wait while it stops. A second Close does nothing.
func (n *Node) Close() (err error) {
	n.once.Do(func() { err = n.close() })
	return err
}

func (n *Node) close() error {
	close(n.closing)
	n.cancel()
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	err := errors.Join(n.changes.Close(ctx), n.transfers.Close(ctx))
	if n.raft == nil {
		return err
	}
	stopped := n.raft.Shutdown()
	err = errors.Join(err, n.streams.Close(), stopped.Error(), n.latch.wal.Close(), os.RemoveAll(n.shots()))
	return err
}

// dataDir returns the data directory.
func (n *Node) dataDir() string { return filepath.Dir(n.deps.Dir) }

// installFile returns the path of a complete file that raft has received.
func (n *Node) installFile() string { return member.At(n.dataDir()).InstallFile() }
