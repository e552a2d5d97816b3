package member

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/store"
)

// mustBeOnly fails unless d is the only member of a cluster, with no mark left.
func mustBeOnly(t *testing.T, d *Dir, want *peer.Identity) {
	t.Helper()
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	servers, err := d.lastConfiguration()
	if err != nil || !isOnly(servers, id.ServerID()) || string(servers[0].Address) != id.Advertise() {
		t.Errorf("members %v, err = %v, want only %s", servers, err, id.ServerID())
	}
	if want != nil && (id.ServerID() != want.ServerID() || id.ClusterID() != want.ClusterID()) {
		t.Errorf("identity %s, want %s", id.ServerID(), want.ServerID())
	}
	if err := d.idle(); err != nil || id.Authority() == nil {
		t.Errorf("err = %v, authority %v", err, id.Authority())
	}
	if s, err := d.Finish(); err != nil || !s.Clustered || s.Joining != nil {
		t.Errorf("Finish = %+v, err = %v", s, err)
	}
}

// mustBeAlone fails unless d belongs to no cluster.
func mustBeAlone(t *testing.T, d *Dir) {
	t.Helper()
	if m, err := store.ReadMembership(d.Database()); m != nil || err != nil {
		t.Errorf("membership %+v, err = %v", m, err)
	}
	if d.exists(clusterDir, peer.NodeFile) || d.exists(clusterDir, peer.CAKeyFile) || d.exists(raftDir) {
		t.Error("files of the cluster are left")
	}
	if s, err := d.Finish(); err != nil || s.Clustered {
		t.Errorf("Finish = %+v, err = %v", s, err)
	}
}

func TestInitAndLeave(t *testing.T) {
	d := alone(t)
	mustBeAlone(t, d)
	if d.exists(clusterDir) {
		t.Error("Finish makes a directory for a node alone")
	}
	if err := d.LeaveLast(); !errors.Is(err, ErrAlone) {
		t.Errorf("leave of a node alone: err = %v", err)
	}
	id, err := d.Init(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	mustBeOnly(t, d, id)
	if _, err := d.Init(testAddr); !errors.Is(err, ErrMember) {
		t.Errorf("second init: err = %v, want ErrMember", err)
	}
	if err := d.LeaveLast(); err != nil {
		t.Fatal(err)
	}
	mustBeAlone(t, d)
	if _, err := d.Init(testAddr); err != nil {
		t.Errorf("init after a leave: %v", err)
	}
}

func TestInitRefuses(t *testing.T) {
	good := store.Info{Schema: store.Schema}
	old, restored := good, good
	old.Schema--
	restored.Restored = true
	for _, tt := range []struct {
		info store.Info
		addr string
		want error
	}{{old, testAddr, store.ErrSchema}, {restored, testAddr, store.ErrRestored}, {good, ":7946", nil}} {
		d := alone(t)
		if _, err := d.BeginInit(tt.info, tt.addr); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%+v: err = %v, want %v", tt.info, err, tt.want)
		}
		mustBeAlone(t, d)
	}
	memory := At(t.TempDir())
	if _, err := memory.BeginInit(good, testAddr); !errors.Is(err, ErrEphemeral) || memory.exists(clusterDir) {
		t.Errorf("a node in memory: err = %v, want ErrEphemeral", err)
	}
	if _, err := At(t.TempDir()).Init(testAddr); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: err = %v, want os.ErrNotExist", err)
	}
}

// steps runs a verb that is killed before its step 0, 1, … on a directory each of its own, until
// the verb is no longer killed, and calls after for each.
func steps(t *testing.T, from *Dir, verb func(*Dir) error, after func(*Dir)) {
	t.Helper()
	for n := 0; ; n++ {
		d := copied(t, from)
		err := verb(d.killAt(n))
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at step %d: err = %v", n, err)
		}
		after(d)
		if err := os.RemoveAll(d.path); err != nil { // with its log, of which there would be dozens
			t.Fatal(err)
		}
		if err == nil {
			if n < 2 {
				t.Fatalf("the verb has %d steps: the test is broken", n)
			}
			return
		}
	}
}

func TestInitKilled(t *testing.T) {
	verb := func(d *Dir) error {
		_, err := d.Init(testAddr)
		return err
	}
	from := alone(t)
	steps(t, from, verb, func(d *Dir) {
		if d.has(initMark) || !d.exists(clusterDir, peer.NodeFile) { // run again
			if _, err := d.Init(testAddr); err != nil {
				t.Error(err)
			}
		}
		mustBeOnly(t, d, nil)
	})
	steps(t, from, verb, func(d *Dir) { // run again with another address
		begun := d.has(initMark) && d.exists(clusterDir, peer.NodeFile)
		if _, err := d.Init("10.0.0.9:7946"); begun && !errors.Is(err, ErrUnfinished) {
			t.Errorf("err = %v, want ErrUnfinished", err)
		}
		mustFinish(t, d)
		mustBeOnly(t, d, nil)
	})
	steps(t, from, verb, func(d *Dir) { // booted instead
		if _, err := d.Finish(); err != nil {
			t.Error(err)
		}
		if d.exists(clusterDir, peer.NodeFile) {
			mustBeOnly(t, d, nil)
			return
		}
		mustBeAlone(t, d)
	})
}

// A running node begins; the boot completes, also when it is killed.
func TestFinishKilled(t *testing.T) {
	begun := alone(t)
	id, err := begun.BeginInit(store.Info{Schema: store.Schema}, testAddr)
	if err != nil {
		t.Fatal(err)
	}
	finish := func(d *Dir) error {
		_, err := d.Finish()
		return err
	}
	steps(t, begun, finish, func(d *Dir) { mustFinish(t, d); mustBeOnly(t, d, id) })
	mustFinish(t, begun)
	if err := begun.BeginLeave(); err != nil {
		t.Fatal(err)
	}
	steps(t, begun, finish, func(d *Dir) { mustFinish(t, d); mustBeAlone(t, d) })
}

func mustFinish(t *testing.T, d *Dir) {
	t.Helper()
	if _, err := d.Finish(); err != nil {
		t.Error(err)
	}
}

func TestLeaveKilled(t *testing.T) {
	from := alone(t)
	if _, err := from.Init(testAddr); err != nil {
		t.Fatal(err)
	}
	steps(t, from, (*Dir).LeaveLast, func(d *Dir) {
		if err := d.LeaveLast(); err != nil && !errors.Is(err, ErrAlone) {
			t.Error(err)
		}
		mustBeAlone(t, d)
	})
}

// A configuration with another member, in the file or only in the log, prevents a leave.
func TestLeaveNotLast(t *testing.T) {
	two := func(id *peer.Identity) []byte {
		return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
			{ID: raft.ServerID(id.ServerID()), Address: testAddr}, {ID: "other", Address: "10.0.0.2:7946#standby"},
		}})
	}
	d := alone(t)
	id, err := d.Init(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	inLog := copied(t, d)
	if err := os.MkdirAll(inLog.file(raftDir), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := newLog(inLog)
	if err != nil {
		t.Fatal(err)
	}
	err = w.StoreLogs([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: onlyMember(id)},
		{Index: 2, Term: 1, Type: raft.LogConfiguration, Data: two(id)}, {Index: 3, Term: 1, Type: raft.LogNoop},
	})
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		t.Fatal(err)
	}
	m.Raw = two(id)
	if err := store.SetMembership(d.Database(), m); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Dir{d, inLog} {
		if err := d.LeaveLast(); !errors.Is(err, ErrNotLast) {
			t.Errorf("err = %v, want ErrNotLast", err)
		}
		servers, err := d.lastConfiguration()
		if err != nil {
			t.Fatal(err)
		}
		if got := addresses(servers, id.ServerID()); len(got) != 1 || got[0] != "10.0.0.2:7946" {
			t.Errorf("addresses %v", got)
		}
	}
}

// recording is a log that keeps the entries.
type recording struct {
	solo
	entries []*raft.Log
}

func (l *recording) Propose(ctx context.Context, e []byte) (store.Place, error) {
	at, err := l.solo.Propose(ctx, e)
	l.entries = append(l.entries, &raft.Log{Index: at.Index, Term: at.Term, Type: raft.LogCommand, Data: e})
	return at, err
}

// ahead returns a member whose log has entries that its file lacks, and the state that they lead
// to.
func ahead(t *testing.T) (d *Dir, then store.Info) {
	t.Helper()
	d = alone(t)
	id, err := d.Init(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	log := &recording{solo: solo{store.Place{Index: 1, Term: 1}}}
	there := copied(t, d)
	cat := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: there.Database(), Catalog: cat, Replicator: log})
	s.Declare("cluster", Buckets()...)
	if err := errors.Join(s.Open(t.Context()), s.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	sup.Start(s.Tasks()...)
	err = s.Lead()
	for range 3 {
		_, _, bad := Mint(t.Context(), s, id.Pin(), MintSpec{})
		err = errors.Join(err, bad)
	}
	s.CloseLanes()
	sup.Close()
	if err := errors.Join(err, s.Close(), os.MkdirAll(d.file(raftDir), 0o700)); err != nil {
		t.Fatal(err)
	}
	w, err := newLog(d)
	if err != nil {
		t.Fatal(err)
	}
	last := log.entries[len(log.entries)-1].Index
	err = w.StoreLogs(append(log.entries, &raft.Log{Index: last + 1, Term: 2, Type: raft.LogNoop}))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return d, infoOf(t, there)
}

// A leader may have acknowledged entries that this node has only in its log: no verb loses them.
func TestLogIsReplayed(t *testing.T) {
	from, then := ahead(t)
	if now := infoOf(t, from); now.Seq >= then.Seq {
		t.Fatalf("the file has command %d, the log leads to %d: the test is broken", now.Seq, then.Seq)
	}
	recovers := func(d *Dir) error {
		_, err := d.Recover(t.Context(), RecoverOptions{By: store.Event{Event: "cluster.recovered", Decision: "allow"}})
		return err
	}
	for name, verb := range map[string]func(*Dir) error{"leave": (*Dir).LeaveLast, "recover": recovers} {
		steps(t, from, verb, func(d *Dir) {
			mustFinish(t, d)
			m, err := store.ReadMembership(d.Database())
			if err != nil {
				t.Fatal(err)
			}
			if m != nil && m.Applied.Origin == "init" && m.Applied.Term == 1 {
				return // the verb has not begun
			}
			if now := infoOf(t, d); now.Seq != then.Seq || now.AuditSeq < then.AuditSeq {
				t.Errorf("%s: %+v, want command %d", name, now, then.Seq)
			}
		})
	}
}

// A log that does not lead to the file is named, and may be moved away.
func TestLogDiverges(t *testing.T) {
	d, _ := ahead(t)
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		t.Fatal(err)
	}
	m.Applied.Chain[0]++
	if err := store.SetMembership(d.Database(), m); err != nil {
		t.Fatal(err)
	}
	if err := d.LeaveLast(); !errors.Is(err, store.ErrDiverged) || !strings.Contains(err.Error(), d.file(raftDir)) {
		t.Errorf("err = %v, want ErrDiverged and the path of the log", err)
	}
	if err := errors.Join(os.Rename(d.file(raftDir), d.file("raft.old")), d.LeaveLast()); err != nil {
		t.Error(err)
	}
	mustBeAlone(t, d)
}

func infoOf(t *testing.T, d *Dir) store.Info {
	t.Helper()
	r, err := store.OpenReader(d.Database())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	return r.Info()
}

// The verbs exclude each other.
func TestLock(t *testing.T) {
	d := alone(t)
	unlock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Init(testAddr); !errors.Is(err, store.ErrLocked) {
		t.Errorf("err = %v, want ErrLocked", err)
	}
	unlock()
	if _, err := d.Init(testAddr); err != nil {
		t.Error(err)
	}
}

// A running node is refused.
func TestRunning(t *testing.T) {
	l := lead(t)
	for name, verb := range map[string]func() error{
		"leave":   l.d.LeaveLast,
		"recover": func() error { _, err := l.d.Recover(t.Context(), RecoverOptions{}); return err },
		"rejoin":  func() error { _, err := l.d.RejoinWipe(t.Context(), JoinOptions{}); return err },
		"init":    func() error { _, err := l.d.Init(testAddr); return err },
	} {
		if err := verb(); !errors.Is(err, store.ErrLocked) {
			t.Errorf("%s: err = %v, want ErrLocked", name, err)
		}
		if err := l.d.idle(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A complete file of raft replaces the database; a file that is not complete is refused.
func TestInstalledFile(t *testing.T) {
	d := alone(t)
	if _, err := d.Init(testAddr); err != nil {
		t.Fatal(err)
	}
	put := func() {
		raw, err := os.ReadFile(d.Database())
		if err == nil {
			err = os.WriteFile(d.InstallFile(), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put()
	if _, err := d.Finish(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a file that is not complete: err = %v, want ErrCorrupt", err)
	}
	m, err := store.ReadMembership(d.InstallFile())
	if err != nil {
		t.Fatal(err)
	}
	m.Applied = store.Applied{Place: store.Place{Index: 9, Term: 2}, Origin: "install"}
	if err := store.SetMembership(d.InstallFile(), m); err != nil {
		t.Fatal(err)
	}
	mustFinish(t, d)
	if m, err := store.ReadMembership(d.Database()); err != nil || m.Applied.Index != 9 || d.exists(databaseFile+installSuffix) {
		t.Errorf("membership %+v, err = %v", m, err)
	}
}
