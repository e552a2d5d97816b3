package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/cluster"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// fakeMember is a cluster without other members and without a log, in which a test elects and
// deposes.
type fakeMember struct {
	started, elected, deposed chan struct{}
	once                      sync.Once
	store                     *store.Store
	at                        atomic.Uint64
	lost                      atomic.Bool // Propose fails
	why                       cluster.Reason
	yields                    bool // Yield deposes
}

func newFakeMember() *fakeMember {
	return &fakeMember{
		started: make(chan struct{}), elected: make(chan struct{}), deposed: make(chan struct{}), why: "test",
	}
}

func (m *fakeMember) Replicator() store.Replicator { return m }
func (m *fakeMember) Propose(context.Context, []byte) (store.Place, error) {
	if m.lost.Load() {
		return store.Place{}, &store.NothingError{Cause: store.ErrNotLeader}
	}
	return store.Place{Index: m.at.Add(1), Term: 1}, nil
}
func (m *fakeMember) Applied(store.Place)          {}
func (m *fakeMember) Fetch(context.Context) error  { return nil }
func (m *fakeMember) Listen(context.Context) error { return nil }

func (m *fakeMember) Start(_ context.Context, s *store.Store) error {
	m.store = s
	m.at.Store(s.Applied().Index)
	close(m.started)
	return nil
}
func (m *fakeMember) Tasks() []flow.Task             { return nil }
func (m *fakeMember) Elected() <-chan struct{}       { return m.elected }
func (m *fakeMember) Deposed() <-chan struct{}       { return m.deposed }
func (m *fakeMember) Reason() (string, error)        { return string(m.why), nil }
func (m *fakeMember) Keep() (systemd.Socket, error)  { return systemd.Socket{}, errors.ErrUnsupported }
func (m *fakeMember) Shutdown(context.Context) error { return nil }
func (m *fakeMember) Close() error                   { return nil }
func (m *fakeMember) depose()                        { m.once.Do(func() { close(m.deposed) }) }

// Compare implements clusterMember.
func (m *fakeMember) Compare(context.Context) {}

// Yield implements clusterMember.
func (m *fakeMember) Yield(context.Context) {
	if m.yields {
		m.why = cluster.ReasonDrain
		m.depose()
	}
}

// elect lets a node that stands by lead.
func (m *fakeMember) elect() error {
	err := m.store.Lead()
	close(m.elected)
	return err
}

// lead launches a node and elects it.
func lead(t *testing.T, cfg *config.Config, m *fakeMember, o Options) *rig {
	t.Helper()
	r := launchWith(t, cfg, o)
	r.reaches("standby", m.started)
	must(t, m.elect())
	return r.begin()
}

// clusteredConfig is a dev node whose file belongs to a cluster.
func clusteredConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, _ := devConfig(t)
	must(t, store.SetMembership(cfg.Path(config.DatabaseName), &store.Membership{
		Index: 1, Raw: []byte("test"), Applied: store.Applied{Place: store.Place{Index: 1, Term: 1}, Origin: "init"},
	}))
	return cfg
}

// renewal holds the values that a node passes to its next life.
type renewal struct {
	kept []systemd.Socket
	env  []string
	err  error // of beginning it
	n    int
}

// options returns options of a member whose next life r records.
func (r *renewal) options(m clusterMember) Options {
	return Options{member: m, again: func(kept []systemd.Socket, env ...string) error {
		r.kept, r.env, r.n = kept, env, r.n+1
		return r.err
	}}
}

// next returns the options of the life that follows.
func (r *renewal) next(t *testing.T) Options {
	t.Helper()
	o := Options{inherited: map[string]net.Listener{}}
	for _, s := range r.kept {
		f := os.NewFile(uintptr(s.FD), s.Name)
		l, err := net.FileListener(f)
		must(t, errors.Join(err, f.Close()))
		o.inherited[s.Name] = &systemd.Kept{Listener: l, Bind: s.Bind}
	}
	return o
}

// discard closes the sockets that no next life gets.
func (r *renewal) discard(t *testing.T) {
	t.Helper()
	for _, s := range r.kept {
		must(t, s.Close())
	}
}

// standby launches a member and waits until it stands by.
func standby(t *testing.T, cfg *config.Config, o Options) *rig {
	t.Helper()
	r := launchWith(t, cfg, o)
	r.reaches("standby", o.member.(*fakeMember).started)
	r.until("standby", func(p flow.Phase) bool { return p == flow.Standby })
	return r
}

// A member writes nothing of its own before its election, even if it reloads its configuration, and
// then serves like a node alone.
func TestMemberStandsByUntilElected(t *testing.T) {
	cfg := clusteredConfig(t)
	m := newFakeMember()
	o := (&renewal{}).options(m)
	o.Load = func() (*config.Config, []config.Entry, error) {
		next := *cfg
		next.Log.Level = "debug"
		return &next, nil, nil
	}
	before := storedSeq(t, cfg)
	r := standby(t, cfg, o)
	r.Hangup()
	r.await("the reload", func() bool { now, _ := r.config.Load(); return now.version == 2 })
	r.note(t.Context(), store.Event{Event: "test.note"})
	_, err := store.Commit(t.Context(), r.store, store.Control, store.Command[struct{}](auditNote{}))
	if !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("a commit in standby: %v", err)
	}
	if strings.Contains(r.log.String(), store.ErrNotLeader.Error()) {
		t.Error("a part of the node has tried to commit")
	}
	if seq := r.store.Info().Seq; seq != before {
		t.Errorf("it has committed: seq %d, was %d", seq, before)
	}
	if got := r.metric("readyz_degraded"); got != 0 {
		t.Errorf("%v failing keys are exported", got)
	}
	r.await("the recorders, and no other task", func() bool { return r.liveTasks.Load() == 2 })
	must(t, m.elect())
	r.begin()
	key := signer(t, cfg)
	r.mustPut(r.tcp(), key, r.services.Registry().Head().Head.Version+1, "led")
	r.halt()
	if got := r.log.phases(); got != "standby recovering running draining stopping stopped" {
		t.Error(got)
	}
}

// storedSeq returns the seq of the file of a node that does not run.
func storedSeq(t *testing.T, cfg *config.Config) (seq uint64) {
	t.Helper()
	r, err := store.OpenReader(cfg.Path(config.DatabaseName))
	must(t, err)
	seq = r.Info().Seq
	must(t, r.Close())
	return seq
}

// A standby that is told to stop stops.
func TestStandbyStops(t *testing.T) {
	cfg := clusteredConfig(t)
	r := standby(t, cfg, (&renewal{}).options(newFakeMember()))
	r.halt()
}

// A deposed leader answers what waits and begins its next life on the same sockets.
func TestDeposedLeaderBeginsAnew(t *testing.T) {
	cfg := clusteredConfig(t)
	m, again := newFakeMember(), &renewal{}
	r := lead(t, cfg, m, again.options(m))
	addr := r.Addr()
	m.depose()
	if code := r.end(); code != process.ExitClean || again.n != 1 {
		t.Fatalf("exit %d, %d next lives\n%s", code, again.n, r.log)
	}
	if len(again.env) != 2 || again.env[0] != "_RONBOX_ENDED=test=1" ||
		!strings.HasPrefix(again.env[1], "_RONBOX_DEPOSED=,") {
		t.Errorf("the next life gets %q", again.env)
	}
	o := again.next(t)
	m = newFakeMember()
	o.member = m
	next := lead(t, cfg, m, o)
	if next.Addr() != addr {
		t.Errorf("it serves on %s, was %s", next.Addr(), addr)
	}
	next.halt()
	if strings.Contains(next.log.String(), "unclean_boot") {
		t.Error("the file was not closed, though the committer had ended")
	}
}

// A leader that is told to stop lets another member lead first, and then ends in order.
func TestDrainYields(t *testing.T) {
	m, again := newFakeMember(), &renewal{}
	m.yields = true
	r := lead(t, clusteredConfig(t), m, again.options(m))
	r.halt()
	if !r.isDeposed() || again.n != 0 {
		t.Errorf("deposed %v, %d next lives", r.isDeposed(), again.n)
	}
	if strings.Contains(r.log.String(), "not on the audit chain") {
		t.Error("it has tried to write after it has yielded")
	}
}

// The committer of a deposed leader ends. That is no bug of the node, even if the node notices it
// before the deposition: it begins its next life, or stops in order if it was told to.
func TestEndOfDeposedCommitter(t *testing.T) {
	for _, drains := range []bool{false, true} {
		cfg := clusteredConfig(t)
		m, again := newFakeMember(), &renewal{}
		r := lead(t, cfg, m, again.options(m))
		m.lost.Store(true)
		if err := r.record(t.Context(), store.Event{Event: "test.note"}); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("a commit without a quorum: %v", err)
		}
		<-r.store.Deposed()
		if drains {
			r.stop()
		}
		m.depose()
		lives := 1
		if drains {
			lives = 0
		}
		if code := r.end(); code != process.ExitClean || again.n != lives {
			t.Errorf("drains %t: exit %d, %d next lives\n%s", drains, code, again.n, r.log)
		}
		if strings.Contains(r.log.String(), "task died") {
			t.Errorf("drains %t: the end of the committer is logged as an error\n%s", drains, r.log)
		}
		again.discard(t)
	}
}

// A leader that has left its cluster stops.
func TestLeaderThatLeftStops(t *testing.T) {
	m, again := newFakeMember(), &renewal{}
	r := lead(t, clusteredConfig(t), m, again.options(m))
	r.quits.Store(1)
	m.lost.Store(true)
	m.depose()
	if code := r.end(); code != process.ExitClean || again.n != 0 {
		t.Errorf("exit %d, %d next lives\n%s", code, again.n, r.log)
	}
}

// A node whose committer hangs answers what waits as unknown, and begins its next life.
func TestHungNodeBeginsAnew(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(fmt.Sprintf("alone %t", alone), func(t *testing.T) { hungNode(t, alone) })
	}
}

// hungNode deposes a node whose committer hangs, alone or beside a task that has not ended yet.
func hungNode(t *testing.T, alone bool) {
	cfg := clusteredConfig(t)
	m, again := newFakeMember(), &renewal{}
	r := lead(t, cfg, m, again.options(m))
	if !alone {
		r.liveTasks.Add(1)
	}
	release := r.holdStore()
	late := make(chan error, 1)
	go func() {
		_, err := r.tcp().Propose(t.Context(), draft(2, "late"), "")
		late <- err
	}()
	r.inHand(1)
	m.depose()
	err := <-late
	var p *wire.Problem
	if !errors.As(err, &p) || p.Status < 500 || !p.Retryable {
		t.Errorf("a waiting write: %v", err)
	}
	if code := r.end(); code != process.ExitClean || again.n != 1 {
		t.Errorf("exit %d, %d next lives\n%s", code, again.n, r.log)
	}
	release()
	again.discard(t)
}

// A node whose log hangs does not close the file, which would wait for the disk. Raft would go on to
// lead meanwhile.
func TestHungLog(t *testing.T) {
	cfg := clusteredConfig(t)
	m, again := newFakeMember(), &renewal{}
	m.why = cluster.ReasonHung
	r := lead(t, cfg, m, again.options(m))
	m.lost.Store(true) // the committer ends
	m.depose()
	if code := r.end(); code != process.ExitClean || again.n != 1 {
		t.Errorf("exit %d, %d next lives\n%s", code, again.n, r.log)
	}
	if _, err := store.OpenReader(cfg.Path(config.DatabaseName)); !errors.Is(err, store.ErrLocked) {
		t.Errorf("the file was closed: %v", err)
	}
	must(t, r.store.Close())
	again.discard(t)
}

// A node alone begins its next life on its own sockets. A request made in between waits for it.
func TestRenewKeepsSockets(t *testing.T) {
	cfg, _ := devConfig(t)
	again := &renewal{}
	r := launchWith(t, cfg, again.options(nil)).begin()
	addr, c := r.Addr(), r.tcp()
	r.Renew(tokens.Self("test"), "", "test")
	if code := r.end(); code != process.ExitClean || again.n != 1 || len(again.env) != 0 {
		t.Fatalf("exit %d, %d next lives with %q\n%s", code, again.n, again.env, r.log)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Head(t.Context())
		answered <- err
	}()
	next := launchWith(t, cfg, again.next(t)).begin()
	if err := <-answered; err != nil {
		t.Errorf("a request between the lives: %v", err)
	}
	if next.Addr() != addr {
		t.Errorf("it serves on %s, was %s", next.Addr(), addr)
	}
	if _, err := next.socket().Status(t.Context()); err != nil {
		t.Errorf("over the socket: %v", err)
	}
	next.halt()
	if _, err := os.Stat(cfg.SocketPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file is left: %v", err)
	}
}

// A node alone leaves the peer port of its service manager to a next life, which may be that of a
// member.
func TestRenewKeepsSparePeerPort(t *testing.T) {
	cfg, _ := devConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	again := &renewal{}
	o := again.options(nil)
	o.inherited = map[string]net.Listener{systemd.PeerName: l}
	r := launchWith(t, cfg, o).begin()
	r.Renew(tokens.Self("test"), "", "test")
	if code := r.end(); code != process.ExitClean {
		t.Fatalf("exit %d\n%s", code, r.log)
	}
	must(t, l.Close())
	at := slices.IndexFunc(again.kept, func(s systemd.Socket) bool { return s.Name == systemd.PeerName })
	if at < 0 || again.kept[at].Bind != "" {
		t.Errorf("the next life gets %+v", again.kept)
	}
	again.discard(t)
}

// A node that cannot begin its next life says so by its exit code.
func TestNoNextLife(t *testing.T) {
	cfg, _ := devConfig(t)
	again := &renewal{err: errors.New("no such program")}
	r := launchWith(t, cfg, again.options(nil)).begin()
	r.Renew(tokens.Self("test"), "", "test")
	if code := r.end(); code != process.ExitNotRenewed || !strings.Contains(r.log.String(), "no such program") {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitNotRenewed, r.log)
	}
	again.discard(t)
}

// A stop signal during the end of a life wins: there is no next one.
func TestStopWinsOverRenewal(t *testing.T) {
	cfg, _ := devConfig(t)
	again := &renewal{}
	r := launchWith(t, cfg, again.options(nil)).begin()
	r.stop()
	r.Renew(tokens.Self("test"), "", "test")
	if code := r.end(); code != process.ExitClean || again.n != 0 {
		t.Errorf("exit %d, %d next lives\n%s", code, again.n, r.log)
	}
	again.discard(t)
}
