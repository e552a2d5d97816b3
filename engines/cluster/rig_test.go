package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testRows = &store.Bucket{Name: "test/rows"}
	rows     = store.NewTable(testRows, store.String[string](), store.Raw())
)

// put writes a row.
type put struct{ Key, Value string }

func (put) Kind() string { return "test.put/1" }

func (c put) Apply(_ store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	rows.Put(w, c.Key, []byte(c.Value))
	return at.Seq, nil
}

// world is a cluster of real stores over a mesh.
type world struct {
	t       testing.TB
	mesh    *mesh
	dir     string
	members map[string]*server
	log     hclog.Logger
	change  func(*Node)              // of each node before it starts; may be nil
	faults  func(*Node, Store) Store // wraps the store of each node; may be nil
	ports   map[string]tlsPort       // by server; nil: the mesh
}

// server is one server: the lives of a node, one after the other.
type server struct {
	w    *world
	id   string
	addr string
	dir  string

	mu     sync.Mutex
	life   *life // nil between two lives; guarded by mu
	lives  int   // guarded by mu
	failed error // of the boot; guarded by mu
	off    context.CancelFunc
	done   chan struct{}
}

// life is one life of a node.
type life struct {
	node   *Node
	store  *store.Store
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	commit chan struct{} // closed when the committer has ended
}

func newWorld(t testing.TB, seed uint64) *world {
	t.Logf("seed %d", seed)
	level := hclog.Off
	if testing.Verbose() && os.Getenv("RAFTLOG") != "" {
		level = hclog.Debug
	}
	return &world{
		t:       t,
		mesh:    newMesh(seed),
		dir:     tempDir(t),
		members: map[string]*server{},
		log:     hclog.New(&hclog.LoggerOptions{Level: level, Output: writerOf{t}}),
	}
}

// tempDir returns a folder in memory if there is one: a test syncs often, and no test here loses
// power.
func tempDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "ronbox-cluster")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// writerOf logs to a test.
type writerOf struct{ t testing.TB }

func (w writerOf) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// add makes a server with an empty folder.
func (w *world) add(id string) *server {
	m := &server{w: w, id: id, addr: id + ":1", dir: filepath.Join(w.dir, id)}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.members[id] = m
	return m
}

// found makes a file and a cluster of the server alone.
func (w *world) found(id string) *server {
	m := w.add(id)
	ident, err := store.NewIdentity(time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	if err = store.Create(m.path(), ident); err != nil {
		w.t.Fatal(err)
	}
	c := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(m.addr),
	}}}
	err = store.SetMembership(m.path(), &store.Membership{
		Index: 1, Raw: raft.EncodeConfiguration(c), Applied: store.Applied{
			Place: store.Place{Index: 1, Term: 1}, Origin: "init",
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (m *server) path() string { return filepath.Join(m.dir, "ronbox.db") }

func (m *server) ServerID() string    { return m.id }
func (m *server) NotAfter() time.Time { return time.Unix(1<<33, 0) }
func (m *server) Advertise() string   { return m.addr }

// receive gives the server the file of the leader, as a join does before raft starts.
func (m *server) receive(from *Node) {
	shot, err := from.Shot(m.w.t.Context())
	if err != nil {
		m.w.t.Fatal(err)
	}
	raw, err := os.ReadFile(shot.Manifest.Path)
	if err == nil {
		err = os.WriteFile(m.path(), raw, 0o600)
	}
	if err = errors.Join(err, shot.Remove()); err != nil {
		m.w.t.Fatal(err)
	}
	shot.Membership.Applied.Origin = "install"
	if err = store.SetMembership(m.path(), &shot.Membership); err != nil {
		m.w.t.Fatal(err)
	}
}

// on runs the server until off: a life that ends is followed by another.
func (m *server) on() *server {
	ctx, cancel := context.WithCancel(context.Background())
	m.mu.Lock()
	m.off, m.done, m.failed = cancel, make(chan struct{}), nil
	done := m.done
	m.mu.Unlock()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			l, err := m.begin()
			m.mu.Lock()
			m.life, m.failed = l, err
			m.lives++
			m.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-l.node.Deposed():
			case <-l.store.Deposed():
			case <-ctx.Done():
			}
			m.mu.Lock()
			m.life = nil
			m.mu.Unlock()
			if err = l.end(); err != nil {
				m.w.t.Errorf("%s: end of a life: %v", m.id, err)
			}
		}
	}()
	return m
}

// stop turns the server off.
func (m *server) stop() {
	m.off()
	<-m.done
}

// begin boots.
func (m *server) begin() (*life, error) {
	ctx := context.Background()
	got := filepath.Join(m.dir, "ronbox.db.install")
	if _, err := os.Stat(got); err == nil {
		if err = os.Rename(got, m.path()); err != nil {
			return nil, err
		}
	}
	ms, err := store.ReadMembership(m.path())
	if err != nil {
		return nil, err
	}
	metrics := obs.NewMetrics()
	catalog := flow.NewCatalog(metrics, m.w.log)
	cfg := DefaultConfig()
	cfg.Heartbeat = unit.Duration(time.Second)
	n := New(Deps{
		Log: m.w.log.Named(m.id), Metrics: metrics, Catalog: catalog, Dir: filepath.Join(m.dir, "raft"),
		Port: m.w.mesh.port(m.addr), Self: m, Config: cfg, Membership: *ms,
		Stand:  m.w.stand,
		Origin: func() time.Time { return time.Time{} },
	})
	if p, ok := m.w.ports[m.id]; ok {
		n.deps.Port, n.deps.Self = p, p.id
		n.deps.Config.Heartbeat = unit.Duration(200 * time.Millisecond)
	}
	n.segment = 1 << 20
	if m.w.change != nil {
		m.w.change(n)
	}
	sc := store.DefaultConfig()
	sc.MinFree = 0
	s := store.New(sc, store.Options{Path: m.path(), Catalog: catalog, Replicator: n.Replicator(), Log: m.w.log})
	s.Declare("test", testRows)
	if err = s.Open(ctx); err != nil {
		return nil, err
	}
	if err = s.Prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	l := &life{node: n, store: s, commit: make(chan struct{})}
	go func() {
		defer close(l.commit)
		_ = s.Tasks()[0].Run(ctx)
	}()
	start := func() error { return n.Start(ctx, s) }
	if m.w.faults != nil {
		start = func() error { return n.start(m.w.faults(n, s)) }
	}
	if err = start(); err != nil {
		s.CloseLanes()
		<-l.commit
		return nil, errors.Join(err, n.Close(), s.Close())
	}
	live, cancel := context.WithCancel(ctx)
	l.cancel = cancel
	for _, task := range n.Tasks() {
		l.tasks.Go(func() { _ = task.Run(live) })
	}
	return l, nil
}

// end ends the life in order.
func (l *life) end() error {
	l.store.CloseLanes()
	<-l.commit
	l.cancel()
	l.tasks.Wait()
	return errors.Join(l.node.Close(), l.store.Close())
}

// now returns the life of the server, nil between two.
func (m *server) now() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// boots returns how many lives have begun.
func (m *server) boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives
}

// refusal returns the error of the boot.
func (m *server) refusal() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// stand asks the server at addr how it stands.
func (w *world) stand(_ context.Context, addr string) (member.Stand, error) {
	for _, m := range w.members {
		if l := m.now(); l != nil && m.addr == addr {
			return member.Stand{Unfit: l.node.Unfit(), Applied: l.store.Applied().Index}, nil
		}
	}
	return member.Stand{}, errors.New("connection refused")
}

// until waits until ok returns true, at most for a virtual minute.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 1200 {
		synctest.Wait()
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("not within a minute: %s", what)
}

// leader waits for a node in office among the servers, other than those in not.
func (w *world) leader(not ...*server) *server {
	w.t.Helper()
	var found *server
	w.until("a leader", func() bool {
		found = w.leads(not...)
		return found != nil
	})
	return found
}

// leads returns the node that leads, or nil.
func (w *world) leads(not ...*server) *server {
	for _, m := range w.members {
		l := m.now()
		if l == nil || slices.Contains(not, m) || !l.node.Leads() {
			continue
		}
		select {
		case <-l.node.Elected():
			return m
		default:
		}
	}
	return nil
}

// others returns the servers other than not, by their ids.
func (w *world) others(not *server) []*server {
	var out []*server
	for _, id := range slices.Sorted(maps.Keys(w.members)) {
		if m := w.members[id]; m != not {
			out = append(out, m)
		}
	}
	return out
}

// hold starts servers anew as held.
func (w *world) hold(ms ...*server) {
	w.change = func(n *Node) { n.deps.Hold = true }
	for _, m := range ms {
		m.stop()
		m.on()
		w.until("it lives", func() bool { return m.now() != nil })
	}
}

// put commits a row on a server.
func (m *server) put(key, value string) error {
	l := m.now()
	if l == nil {
		return store.ErrNotLeader
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	_, err := store.Commit(ctx, l.store, store.Work, put{key, value})
	return err
}

// mustPut commits a row.
func (m *server) mustPut(key, value string) {
	m.w.t.Helper()
	if err := m.put(key, value); err != nil {
		m.w.t.Fatalf("%s: put %s: %v", m.id, key, err)
	}
}

// get reads a row on a server.
func (m *server) get(key string) string {
	l := m.now()
	if l == nil {
		return ""
	}
	var out []byte
	if err := l.store.View(context.Background(), func(r store.Reader) error {
		out, _ = rows.Get(r, key)
		return nil
	}); err != nil {
		m.w.t.Fatalf("%s: get %s: %v", m.id, key, err)
	}
	return string(out)
}

// hash returns the hash of all rows of a server.
func (m *server) hash() string {
	l := m.now()
	if l == nil {
		return "off"
	}
	var out string
	err := l.store.View(context.Background(), func(r store.Reader) error {
		out = store.StateHash(r, []*store.Bucket{testRows}).String()
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s at %d", out, l.store.Info().Seq)
}

// equal waits until all servers have the same rows.
func (w *world) equal() {
	w.t.Helper()
	w.until("equal rows", func() bool {
		seen := map[string]bool{}
		for _, m := range w.members {
			h := m.hash()
			if h == "off" {
				return false
			}
			seen[h] = true
		}
		return len(seen) == 1
	})
}

// three founds a cluster of three voters.
func (w *world) three() {
	w.t.Helper()
	a := w.found("a").on()
	w.leader()
	a.mustPut("first", "1")
	for _, id := range []string{"b", "c"} {
		w.join(a, id)
	}
	w.until("three voters", func() bool {
		s := a.now().node.Status(context.Background())
		return len(s.Members) == 3 && s.FailureTolerance == 1
	})
}

// join adds a server to the cluster that from leads.
func (w *world) join(from *server, id string) *server {
	w.t.Helper()
	m := w.add(id)
	m.receive(from.now().node)
	m.on()
	if err := from.now().node.Admit(context.Background(), id, m.addr, false); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// end stops all servers.
func (w *world) end() {
	w.mesh.heal()
	for _, m := range w.members {
		m.stop()
	}
}
