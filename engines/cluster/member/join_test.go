package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// empty returns a data directory that does not exist yet.
func empty(t testing.TB) *Dir {
	t.Helper()
	return At(filepath.Join(t.TempDir(), "data"))
}

// mustBeReady fails unless d has joined the cluster of l and waits for its file.
func mustBeReady(t *testing.T, d *Dir, l *leader) *peer.Identity {
	t.Helper()
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	if id.ClusterID() != l.id.ClusterID() || id.ServerID() == l.id.ServerID() || id.Authority() == nil {
		t.Errorf("identity %+v, want one of the cluster with the authority", id)
	}
	for _, name := range []string{nodeKeyFile, logKeyFile} {
		want, err := os.ReadFile(l.d.file(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(d.file(name))
		info, bad := os.Stat(d.file(name))
		if err != nil || bad != nil || !bytes.Equal(got, want) || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v, err = %v", name, got, info, err)
		}
	}
	s, err := d.Finish()
	if err != nil || !s.Clustered || s.Joining == nil || !s.Joining.Ready || s.Joining.Fetched || d.exists(databaseFile) {
		t.Errorf("Finish = %+v, err = %v, want a node that joins", s, err)
	}
	return id
}

// enter fetches the file, says hello and takes the mark away, as a boot does.
func enter(t *testing.T, d *Dir, l *leader) {
	t.Helper()
	if err := d.FetchFile(t.Context(), FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := d.Finish()
	if err != nil || s.Joining == nil || !s.Joining.Fetched {
		t.Fatalf("Finish = %+v, err = %v, want a node with its file", s, err)
	}
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	client := id.Client()
	defer client.CloseIdleConnections()
	h := Hello{
		Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise(), URL: "http://b.example", Join: true,
	}
	for range 2 { // the second one as a member
		answer, err := SayHello(t.Context(), client, s.Joining.Members, time.Now, h)
		if err != nil || answer.Server != l.id.ServerID() || answer.URL != "http://leader.example" ||
			answer.URLs["other"] == "" {
			t.Fatalf("hello: %+v, err = %v", answer, err)
		}
	}
	if !l.cluster.IsMember(id.ServerID()) || l.cluster.heard[id.ServerID()] != "http://b.example" {
		t.Error("the node was not admitted")
	}
	if err := d.Admitted(); err != nil {
		t.Fatal(err)
	}
	m, err := store.ReadMembership(d.Database())
	if err != nil || m == nil || m.Applied.Origin != "install" {
		t.Errorf("membership %+v, err = %v", m, err)
	}
	if s, err := d.Finish(); err != nil || !s.Clustered || s.Joining != nil {
		t.Errorf("Finish = %+v, err = %v, want a member", s, err)
	}
	if _, err := call[Bundle](t.Context(), client, l.addr, PathBundle, nil); !errors.Is(err, ErrToken) {
		t.Errorf("a member asks for the bundle: err = %v, want ErrToken", err)
	}
}

func TestJoin(t *testing.T) {
	l := lead(t)
	token := l.token(t, MintSpec{Standby: true})
	d := empty(t)
	id, err := d.Join(t.Context(), l.options(token))
	if err != nil {
		t.Fatal(err)
	}
	if got := mustBeReady(t, d, l); got.ServerID() != id.ServerID() {
		t.Errorf("identity %s, want %s", got.ServerID(), id.ServerID())
	}
	if again, err := d.Join(t.Context(), l.options(token)); err != nil || again.ServerID() != id.ServerID() {
		t.Errorf("joined again: %v, err = %v", again, err)
	}
	other := lead(t)
	if _, err := d.Join(t.Context(), other.options(other.token(t, MintSpec{}))); !errors.Is(err, ErrMember) {
		t.Errorf("join of another cluster: err = %v, want ErrMember", err)
	}
	moved := l.options(token)
	moved.Advertise = "127.0.0.1:7948"
	if again, err := d.Join(t.Context(), moved); err != nil || again.Advertise() != moved.Advertise {
		t.Errorf("joined again under another address: %v, err = %v", again, err)
	}
	if _, err := empty(t).Join(t.Context(), l.options(token)); !errors.Is(err, ErrToken) {
		t.Errorf("the token of another node: err = %v, want ErrToken", err)
	}
	enter(t, d, l)
	if !l.cluster.standby[id.ServerID()] {
		t.Error("the node is not a standby")
	}
	if _, err := d.Join(t.Context(), l.options(token)); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a member joins: err = %v, want ErrNotEmpty", err)
	}
}

func TestJoinKilled(t *testing.T) {
	l := lead(t)
	for n := 0; ; n++ {
		token := l.token(t, MintSpec{})
		d := empty(t)
		_, err := d.killAt(n).Join(t.Context(), l.options(token))
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at step %d: err = %v", n, err)
		}
		if s, bad := d.Finish(); err != nil && s.Clustered || bad != nil && !errors.Is(bad, ErrUnfinished) {
			t.Errorf("killed at step %d: Finish = %+v, err = %v", n, s, bad)
		}
		if _, err := d.Join(t.Context(), l.options(token)); err != nil {
			t.Errorf("joined again after step %d: %v", n, err)
		}
		mustBeReady(t, d, l)
		if err == nil {
			break
		}
	}
}

func TestFetchKilled(t *testing.T) {
	l := lead(t)
	from := empty(t)
	if _, err := from.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		d := copied(t, from)
		ctx, cancel := context.WithCancel(t.Context())
		k := d.killAt(n)
		kill := k.step
		k.step = func(name string) error {
			err := kill(name)
			if err != nil {
				cancel() // a killed process does not try again
			}
			return err
		}
		err := k.FetchFile(ctx, FetchOptions{})
		cancel()
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at step %d: err = %v", n, err)
		}
		if err == nil {
			enter(t, d, l)
			break
		}
		mustBeReady(t, d, l)
		if err := d.FetchFile(t.Context(), FetchOptions{}); err != nil {
			t.Errorf("fetched again after step %d: %v", n, err)
		}
	}
}

// A damaged transfer is noticed, and repeated.
func TestFetchDamaged(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	tries := 0
	l.server.d.Shot = func(ctx context.Context) (*Shot, error) {
		tries++
		if tries == 1 {
			return nil, store.ErrBusy
		}
		s, err := l.shot(ctx)
		if err == nil && tries == 2 {
			s.B3[0] ^= 1
		}
		if err == nil && tries == 3 {
			s.Size += store.PageSize // ends before its announced end
		}
		return s, err
	}
	var last, total int64
	err := d.FetchFile(t.Context(), FetchOptions{Progress: func(done, of int64) { last, total = done, of }})
	if err != nil || tries != 4 || last == 0 || last != total {
		t.Errorf("err = %v after %d tries, %d of %d bytes", err, tries, last, total)
	}
	enter(t, d, l)
}

func TestJoinRefuses(t *testing.T) {
	l, other := lead(t), lead(t)
	token := l.token(t, MintSpec{})
	const taken = "127.0.0.1:7948"
	if err := l.cluster.Admit(t.Context(), "member", taken, false); err != nil {
		t.Fatal(err)
	}
	full := empty(t)
	if err := os.MkdirAll(full.file("x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc    string
		d      *Dir
		change func(*JoinOptions)
		want   error
		keeps  bool // the directory does not change
	}{
		{"a full directory", full, func(*JoinOptions) {}, ErrNotEmpty, true},
		{"a node alone", alone(t), func(*JoinOptions) {}, ErrNotEmpty, true},
		{"garbage", empty(t), func(o *JoinOptions) { o.Token = "x" + o.Token[1:] }, ErrTokenForm, true},
		{"no URL", empty(t), func(o *JoinOptions) { o.URL = "http://10.0.0.1:7946" }, nil, true},
		{"no address", empty(t), func(o *JoinOptions) { o.Advertise = "0.0.0.0:1" }, nil, true},
		{"the address of a member", empty(t), func(o *JoinOptions) { o.Advertise = taken }, nil, false},
		{"another cluster", empty(t), func(o *JoinOptions) { o.URL = other.url() }, peer.ErrStranger, false},
		{"a forged secret", empty(t), func(o *JoinOptions) {
			o.Token = Token{Pin: l.id.Pin()}.String()
		}, ErrToken, false},
		{"a clock ahead", empty(t), func(o *JoinOptions) {
			o.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}, peer.ErrRefused, false},
		{"a clock behind", empty(t), func(o *JoinOptions) {
			o.Now = func() time.Time { return time.Now().Add(-2 * time.Second) }
		}, peer.ErrRefused, false},
	} {
		o := l.options(token)
		tt.change(&o)
		if _, err := tt.d.Join(t.Context(), o); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: err = %v, want %v", tt.doc, err, tt.want)
		}
		if tt.keeps && tt.d.exists(clusterDir) {
			t.Errorf("%s: the directory was changed", tt.doc)
		}
	}
	d := empty(t)
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(configFile), []byte("[node]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(t.Context(), l.options(token)); err != nil { // the token is still good
		t.Errorf("a directory with a configuration: %v", err)
	}
}

// Versions that this program cannot speak are refused before the token is used up.
func TestJoinVersions(t *testing.T) {
	l := lead(t)
	token, err := ParseToken(l.token(t, MintSpec{}))
	if err != nil {
		t.Fatal(err)
	}
	client := peer.JoinClient(token.Pin, time.Now)
	defer client.CloseIdleConnections()
	q := joinRequest{
		Versions: peer.ThisProgram(store.Schema), Token: token.Secret[:], Key: make([]byte, 32), Advertise: testAddr,
	}
	for _, tt := range []struct {
		change func(*joinRequest)
		code   Code
	}{
		{func(q *joinRequest) { q.Schema++ }, CodeRefused},
		{func(q *joinRequest) { q.Formats = [2]int{9, 9} }, CodeRefused},
		{func(q *joinRequest) { q.Key = q.Key[1:] }, CodeRequest},
		{func(q *joinRequest) { q.Advertise = "nowhere" }, CodeRequest},
		{func(q *joinRequest) { q.Token = make([]byte, maxBody) }, CodeRequest},
		{func(*joinRequest) {}, ""},
	} {
		q := q
		tt.change(&q)
		_, err := call[joinAnswer](t.Context(), client, l.addr, PathJoin, q)
		e, _ := errors.AsType[*RemoteError](err)
		if (err == nil) != (tt.code == "") || e != nil && e.Code != tt.code {
			t.Errorf("err = %v, want code %q", err, tt.code)
		}
	}
	for _, path := range []string{PathBundle, PathFile, PathHello, PathRejoin} {
		if _, err := send(t.Context(), client, l.addr, path, nil); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s without a certificate: err = %v, want 404", path, err)
		}
	}
}

// A node that does not lead names the leader.
func TestNotLeader(t *testing.T) {
	l, other := lead(t), lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	client := id.Client()
	defer client.CloseIdleConnections()
	l.cluster.leads = false
	h := Hello{Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise(), Join: true}
	for _, leader := range []string{"", "nowhere", other.addr} {
		l.cluster.leader = leader
		_, err := SayHello(t.Context(), client, []string{l.addr}, time.Now, h)
		e, ok := errors.AsType[*RemoteError](err)
		if leader == other.addr { // of another cluster: the redirect is followed and the certificate refused
			if !errors.Is(err, peer.ErrStranger) {
				t.Errorf("err = %v, want ErrStranger", err)
			}
			continue
		}
		if !ok || e.Code != CodeNotLeader || final(err) {
			t.Errorf("leader %q: err = %v, want not_leader", leader, err)
		}
	}
	for _, path := range []string{PathBundle, PathFile} {
		_, err := send(t.Context(), client, l.addr, path, nil)
		if e, ok := errors.AsType[*RemoteError](err); !ok || e.Code != CodeNotLeader {
			t.Errorf("%s: err = %v, want not_leader", path, err)
		}
	}
}

// A node that was removed gets neither the file nor a place.
func TestRemoved(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	client := id.Client()
	defer client.CloseIdleConnections()
	l.cluster.leads = false
	stand, err := AskStand(t.Context(), client, l.addr)
	if err != nil || stand.Unfit != "by the test" || stand.Applied != l.store.Applied().Index || stand.URL == "" {
		t.Errorf("stand of a node that does not lead: %+v, err = %v", stand, err)
	}
	l.cluster.leads = true
	if err := l.cluster.Remove(t.Context(), id.ServerID()); err != nil {
		t.Fatal(err)
	}
	if _, err := AskStand(t.Context(), client, l.addr); !errors.Is(err, ErrToken) {
		t.Errorf("stand: err = %v, want ErrToken", err)
	}
	h := Hello{Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise(), Join: true}
	if _, err := SayHello(t.Context(), client, []string{l.addr}, time.Now, h); !errors.Is(err, ErrToken) {
		t.Errorf("hello: err = %v, want ErrToken", err)
	}
	if _, err := send(t.Context(), client, l.addr, PathFile, nil); !errors.Is(err, ErrToken) {
		t.Errorf("file: err = %v, want ErrToken", err)
	}
	res, err := send(t.Context(), client, l.addr, "/nothing", nil)
	if err == nil || res != nil && res.StatusCode == http.StatusOK {
		t.Errorf("an unknown path: %v, err = %v", res, err)
	}
	l.cluster.leads = true
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); !errors.Is(err, ErrToken) || !d.exists(databaseFile) {
		t.Errorf("rejoin of a removed node: err = %v, want ErrToken and the file kept", err)
	}
	o := l.options(l.token(t, MintSpec{}))
	o.Advertise = ""
	if _, err := d.RejoinWipe(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
	enter(t, d, l)
}

func TestRejoin(t *testing.T) {
	l := lead(t)
	from := empty(t)
	old, err := from.Join(t.Context(), l.options(l.token(t, MintSpec{})))
	if err != nil {
		t.Fatal(err)
	}
	enter(t, from, l)
	if err := os.WriteFile(from.Database(), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.cluster.refuse = fmt.Errorf("%w: 1 of 2 voters answer", ErrQuorum)
	if _, err := from.RejoinWipe(t.Context(), JoinOptions{}); !errors.Is(err, ErrQuorum) || !from.exists(databaseFile) ||
		strings.Contains(err.Error(), "internal") {
		t.Errorf("the removal is refused: err = %v, want ErrQuorum and the file kept", err)
	}
	if s, err := from.Finish(); err != nil || !s.Clustered || s.Joining != nil {
		t.Errorf("Finish = %+v, err = %v, want the member that it was", s, err)
	}
	l.cluster.refuse = nil
	for n := 0; ; n++ {
		d := copied(t, from)
		l.cluster.members[old.ServerID()] = testAddr
		_, err := d.killAt(n).RejoinWipe(t.Context(), JoinOptions{})
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at step %d: err = %v", n, err)
		}
		if err != nil && d.has(rejoinMark) {
			if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
				t.Errorf("again after step %d: %v", n, err)
			}
		}
		if id := mustBeReady(t, d, l); id.ServerID() == old.ServerID() || l.cluster.IsMember(old.ServerID()) {
			t.Errorf("step %d: the old id is left", n)
		}
		if err == nil {
			enter(t, d, l)
			break
		}
	}
}

// A database on another disk stays there: a rejoin and the fetch after it leave the link to it.
func TestRejoinKeepsALink(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	link, target := d.file(databaseFile), filepath.Join(t.TempDir(), "moved.db")
	if err := errors.Join(os.Rename(link, target), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	d = At(d.path)
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was not wiped: %v", err)
	}
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil { // as for a node that was not served
		t.Fatal(err)
	}
	enter(t, d, l)
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link names %q, %v", to, err)
	}
}

// A rejoin that is killed at its end is the verb to repeat, although the mark of a join is there. One
// that is killed while it replaces the identity continues with the new one.
func TestRejoinKilledLate(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	at := "done"
	killed := &Dir{path: d.path, step: func(name string) error {
		if name == at {
			return errKilled
		}
		return nil
	}}
	if _, err := killed.RejoinWipe(t.Context(), JoinOptions{}); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if _, err := d.Finish(); !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), "rejoin --wipe") {
		t.Errorf("Finish: %v, want the name of the verb that was killed", err)
	}
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	at = "swap"
	if _, err := killed.RejoinWipe(t.Context(), JoinOptions{}); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	fresh, err := os.ReadFile(d.file(freshDir, peer.CertFile))
	if err == nil {
		err = os.WriteFile(d.file(clusterDir, peer.CertFile), fresh, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Identity(); err == nil {
		t.Fatal("the identity is complete: the test is broken")
	}
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
	enter(t, d, l)
}

// Either the file or the log may be damaged: the other one names the members.
func TestRejoinFindsMembers(t *testing.T) {
	l := lead(t)
	from := empty(t)
	if _, err := from.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, from, l)
	if err := errors.Join(os.Remove(from.file(clusterDir, peersFile)), os.Mkdir(from.file(raftDir), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc   string
		spoil func(d *Dir) error
	}{
		{"the log is damaged", func(d *Dir) error {
			return os.WriteFile(d.file(raftDir, "wal-meta.db"), []byte("damaged"), 0o600)
		}},
		{"the file is damaged", func(d *Dir) error {
			w, err := newLog(d)
			if err != nil {
				return err
			}
			e := &raft.Log{Index: 5, Term: 1, Type: raft.LogConfiguration, Data: onlyMember(l.id)}
			return errors.Join(w.StoreLog(e), w.Close(), os.WriteFile(d.Database(), []byte("damaged"), 0o600))
		}},
	} {
		d := copied(t, from)
		old, err := d.Identity()
		if err = errors.Join(err, tt.spoil(d)); err != nil {
			t.Fatal(err)
		}
		l.cluster.members[old.ServerID()] = testAddr
		if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
			t.Errorf("%s: %v", tt.doc, err)
		}
		mustBeReady(t, d, l)
	}
}

// A rejoin may be repeated before the node is served. It then has the same outcome, and spends no
// second token.
func TestRejoinTwice(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	twice := func(o JoinOptions) *peer.Identity {
		t.Helper()
		first, err := d.RejoinWipe(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.RejoinWipe(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if mustBeReady(t, d, l); again.ServerID() != first.ServerID() {
			t.Errorf("the second id is %s, the first was %s", again.ServerID(), first.ServerID())
		}
		return first
	}
	first := twice(JoinOptions{})
	moved := JoinOptions{Advertise: "127.0.0.1:7948"} // the first address was wrong
	if again := twice(moved); again.ServerID() != first.ServerID() || again.Advertise() != moved.Advertise {
		t.Errorf("node %s at %s, want %s at %s", again.ServerID(), again.Advertise(), first.ServerID(), moved.Advertise)
	}
	enter(t, d, l)

	if err := l.cluster.Remove(t.Context(), first.ServerID()); err != nil {
		t.Fatal(err)
	}
	o := l.options(l.token(t, MintSpec{}))
	first = twice(o)

	if err := Forget(t.Context(), l.store, first.ServerID()); err != nil { // as after a day
		t.Fatal(err)
	}
	if _, err := d.RejoinWipe(t.Context(), o); !errors.Is(err, ErrToken) {
		t.Errorf("the token is spent: err = %v, want ErrToken", err)
	}
	if next := twice(l.options(l.token(t, MintSpec{}))); next.ServerID() == first.ServerID() {
		t.Error("the forgotten id was kept")
	}
	enter(t, d, l)

	// of another cluster, which has recovered or replaced the first
	if err := os.Remove(d.Database()); err != nil {
		t.Fatal(err)
	}
	twice(JoinOptions{})
	l = lead(t)
	twice(l.options(l.token(t, MintSpec{})))
}

// A rejoin that cannot succeed, or that began with a wrong address, takes nothing from the node: it
// serves as before, recovers, leaves, or rejoins under another address.
func TestRejoinInVain(t *testing.T) {
	l := lead(t)
	from := empty(t)
	if _, err := from.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, from, l)
	if err := from.SavePeers([]string{"127.0.0.1:1"}); err != nil { // nobody
		t.Fatal(err)
	}
	nowhere := JoinOptions{URL: "https://127.0.0.1:1", Token: l.token(t, MintSpec{}), Advertise: "127.0.0.1:7948"}
	if _, err := from.RejoinWipe(t.Context(), nowhere); err == nil || !from.has(rejoinMark) {
		t.Fatalf("err = %v", err)
	}
	if s, err := from.Finish(); err != nil || !s.Clustered {
		t.Errorf("Finish = %+v, err = %v", s, err)
	}
	d := copied(t, from)
	recovers := RecoverOptions{By: store.Event{Event: "cluster.recover", Decision: "accept"}}
	_, err := d.Recover(t.Context(), recovers)
	if !errors.Is(err, ErrOthersRun) || !strings.Contains(err.Error(), l.addr) {
		t.Errorf("recover beside a running member: err = %v, want ErrOthersRun and its address", err)
	}
	if d.has(recoverMark) || !d.has(rejoinMark) {
		t.Error("a refused recover has changed the node")
	}
	recovers.OthersRun = true
	if _, err := d.Recover(t.Context(), recovers); err != nil {
		t.Errorf("recover: %v", err)
	}
	mustBeOnly(t, d, nil)
	if d.has(rejoinMark) {
		t.Error("recover: the mark of the rejoin is left")
	}
	o := l.options(l.token(t, MintSpec{}))
	o.Advertise = l.addr // taken
	if _, err := from.RejoinWipe(t.Context(), o); err == nil {
		t.Fatal("the address of a member was taken")
	}
	o.Advertise = "127.0.0.1:7949"
	if id, err := from.RejoinWipe(t.Context(), o); err != nil || id.Advertise() != o.Advertise {
		t.Errorf("under another address: %v", err)
	}
	mustBeReady(t, from, l)
}

// A node that has fetched the file can recover before it was admitted: the others may be lost.
func TestRecoverBeforeAdmission(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	o := RecoverOptions{By: store.Event{Event: "cluster.recover", Decision: "accept"}, OthersRun: true}
	if _, err := d.Recover(t.Context(), o); !errors.Is(err, ErrUnfinished) {
		t.Errorf("without a file: err = %v, want ErrUnfinished", err)
	}
	if err := d.FetchFile(t.Context(), FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Recover(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	mustBeOnly(t, d, nil)
}

// Of two nodes that join under one address, the second to be served learns why it is not admitted.
func TestTwoJoinUnderOneAddress(t *testing.T) {
	l := lead(t)
	first, second := empty(t), empty(t)
	for _, d := range []*Dir{first, second} {
		if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
			t.Fatal(err)
		}
	}
	enter(t, first, l)
	id, err := second.Identity()
	if err != nil {
		t.Fatal(err)
	}
	c := id.Client()
	defer c.CloseIdleConnections()
	_, err = SayHello(t.Context(), c, []string{l.addr}, time.Now, Hello{
		Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise(), Join: true,
	})
	if e, ok := errors.AsType[*RemoteError](err); !ok || e.Code != CodeRequest || !strings.Contains(e.Detail, "has it") {
		t.Errorf("err = %v, want that a member has the address", err)
	}
}

// A node that advertises a loopback address from another machine is refused.
func TestReaches(t *testing.T) {
	l := lead(t)
	for _, tt := range []struct {
		from, addr string
		want       bool
	}{
		{"10.0.0.2:50000", "10.0.0.2:7946", true},
		{"10.0.0.2:50000", "node2.example.org:7946", true},
		{"10.0.0.2:50000", "127.0.0.1:7946", false},
		{"10.0.0.2:50000", "localhost:7946", false},
		{"[fd00::2]:50000", "[::1]:7946", false},
		{"127.0.0.1:50000", "127.0.0.1:7946", true},
	} {
		if err := l.server.reaches(&http.Request{RemoteAddr: tt.from}, tt.addr); (err == nil) != tt.want {
			t.Errorf("%s from %s: %v", tt.addr, tt.from, err)
		}
	}
}
