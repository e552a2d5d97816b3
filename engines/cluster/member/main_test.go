package member

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	raftwal "github.com/hashicorp/raft-wal"
	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testAddr = "127.0.0.1:7946"
	nobody   = "127.0.0.1:1" // no node answers there
)

// alone returns the data directory of a node alone, with secrets.
func alone(t testing.TB) *Dir {
	t.Helper()
	d := At(t.TempDir())
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		store.Create(d.Database(), id),
		os.WriteFile(d.file(nodeKeyFile), []byte(hex.EncodeToString(make([]byte, 32))+"\n"), 0o600),
		os.Mkdir(d.file("registry"), 0o700),
		os.WriteFile(d.file(logKeyFile), []byte("log key\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// solo is the log of a cluster with one member, kept nowhere.
type solo struct{ at store.Place }

func (l *solo) Propose(context.Context, []byte) (store.Place, error) {
	l.at.Index++
	return l.at, nil
}

func (l *solo) Applied(store.Place) {}

// fakeCluster is a raft node that decides alone.
type fakeCluster struct {
	mu      sync.Mutex
	leads   bool
	leader  string            // address, if it does not lead
	members map[string]string // addresses by id
	standby map[string]bool
	heard   map[string]string // URLs by id
	clocks  map[string]time.Duration
	refuse  error // of Remove
}

func (c *fakeCluster) Leads() bool { return c.leads }

func (c *fakeCluster) Leader() (id, addr string, ok bool) { return "", c.leader, c.leader != "" }

func (c *fakeCluster) IsMember(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[id] != ""
}

func (c *fakeCluster) Address(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[id]
}

func (c *fakeCluster) Standby(id string) bool { return c.standby[id] }

func (c *fakeCluster) Members() (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range c.members {
		addrs = append(addrs, addr)
	}
	return addrs
}

func (c *fakeCluster) Admit(_ context.Context, id, addr string, standby bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[id], c.standby[id] = addr, standby
	return nil
}

func (c *fakeCluster) Remove(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse == nil {
		delete(c.members, id)
	}
	return c.refuse
}

func (c *fakeCluster) Unfit() string { return "by the test" }

func (c *fakeCluster) Clocks() map[string]Clock { return map[string]Clock{"other": {Ahead: 7, Age: 9}} }

func (c *fakeCluster) HeardClock(id string, at Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clocks[id] = time.Duration(at.Ahead)
}

func (c *fakeCluster) Heard(id string, w Word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[id] = w.URL
}

// leader is a running first member with its peer port.
type leader struct {
	d       *Dir
	id      *peer.Identity
	store   *store.Store
	cluster *fakeCluster
	server  *Server
	addr    string
	keys    KeyDigests
	noted   []string // audit rows
}

func (l *leader) url() string { return "https://" + l.addr }

// lead starts the first member of a new cluster.
func lead(t testing.TB) *leader {
	t.Helper()
	d := alone(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{d: d, addr: ln.Addr().String()}
	if l.id, err = d.Init(l.addr); err != nil {
		t.Fatal(err)
	}
	cat := flow.NewCatalog(nil, nil)
	l.store = store.New(store.DefaultConfig(), store.Options{
		Path: d.Database(), Catalog: cat, Replicator: &solo{store.Place{Index: 1, Term: 1}},
	})
	l.store.Declare("cluster", Buckets()...)
	if err := errors.Join(l.store.Open(t.Context()), l.store.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	l.cluster = &fakeCluster{
		leads: true, members: map[string]string{l.id.ServerID(): l.addr}, standby: map[string]bool{},
		heard: map[string]string{}, clocks: map[string]time.Duration{},
	}
	l.server = NewServer(Deps{
		Identity: l.id, Store: l.store, Cluster: l.cluster, Now: time.Now, Log: hclog.NewNullLogger(),
		URL:  func() string { return "http://leader.example" },
		URLs: func() map[string]string { return map[string]string{"other": "http://other.example"} },
		Bundle: func() (b Bundle, err error) {
			b.NodeKey, err = os.ReadFile(d.file(nodeKeyFile))
			if err == nil {
				b.LogKey, err = os.ReadFile(d.file(logKeyFile))
			}
			return b, err
		},
		Keys: func() KeyDigests { return l.keys },
		Note: func(_ context.Context, event string, detail map[string]string) {
			if event == EventRotated {
				detail["from"], detail["to"] = detail["server"], detail["certificate_ends"]
			}
			l.noted = append(l.noted, event+" "+detail["from"]+" "+detail["to"])
		},
		Shot: l.shot,
	})
	mux := http.NewServeMux()
	l.server.Register(mux)
	port := peer.Listen(ln, l.id, peer.Options{Catalog: cat})
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	sup.Start(l.store.Tasks()...)
	sup.Start(port.Tasks()...)
	sup.Start(port.ServeTasks(peer.NewServer(mux), peer.NewJoinServer(l.server.Join()))...)
	if err := l.store.Lead(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = port.Close()
		l.store.CloseLanes()
		sup.Close()
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *leader) shot(ctx context.Context) (*Shot, error) {
	dir, err := os.MkdirTemp(l.d.path, "shot")
	if err != nil {
		return nil, err
	}
	m, err := l.store.Snapshot(ctx, dir, store.SnapshotOptions{}, nil)
	if err != nil {
		return nil, err
	}
	return &Shot{Path: m.Path, Size: m.Size, B3: m.B3, Remove: func() error { return os.RemoveAll(dir) }}, nil
}

// token mints a token.
func (l *leader) token(t testing.TB, spec MintSpec) string {
	t.Helper()
	token, _, err := Mint(t.Context(), l.store, l.id.Pin(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return token.String()
}

// options returns the options of a join of the leader.
func (l *leader) options(token string) JoinOptions {
	return JoinOptions{URL: l.url(), Token: token, Advertise: "127.0.0.1:7947"}
}

// errKilled stops a verb as a kill would.
var errKilled = errors.New("killed")

// killAt makes d stop before its step n, counted from 0.
func (d *Dir) killAt(n int) *Dir {
	return &Dir{path: d.path, database: d.database, step: func(string) error {
		if n--; n < 0 {
			return errKilled
		}
		return nil
	}}
}

// newLog makes the log of a member, with segments that take little room: they are allocated in
// advance.
func newLog(d *Dir) (*raftwal.WAL, error) {
	return raftwal.Open(d.file(raftDir), raftwal.WithSegmentSize(64<<10))
}

// copied returns a copy of a data directory.
func copied(t testing.TB, d *Dir) *Dir {
	t.Helper()
	out := At(filepath.Join(t.TempDir(), "data"))
	if err := os.CopyFS(out.path, os.DirFS(d.path)); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(out.path, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// exists reports whether a name is in the data directory.
func (d *Dir) exists(names ...string) bool {
	_, err := os.Lstat(d.file(names...))
	return err == nil
}
