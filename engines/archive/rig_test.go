package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
	"ronbox/store"

	"github.com/hashicorp/go-hclog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rows = &store.Bucket{Name: "test/rows"}

// put is a command that writes a row of some bytes, or deletes it.
type put struct {
	key   string
	bytes int
}

func (put) Kind() string { return "test.put/1" }

func (c put) Apply(_ store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	if c.bytes == 0 {
		w.Delete(rows, []byte(c.key))
		return at.Seq, nil
	}
	w.Put(rows, []byte(c.key), []byte(strings.Repeat(fmt.Sprintf("%d ", at.Seq), c.bytes)))
	return at.Seq, nil
}

// node is a store with an archive. Its tasks run only when the test calls them.
type node struct {
	t      testing.TB
	dir    string
	cfg    Config
	id     *age.X25519Identity
	store  *store.Store
	arc    *Archive
	wrap   func(store.Tap) store.Tap // of the next boot; nil: none
	ended  chan struct{}
	states map[uint64]string // state hash by command
	ahead  time.Duration     // by which the clock of the node runs ahead, from the next boot on
}

// made returns a node with a fresh file and target, which runs.
func made(t testing.TB) *node {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: t.TempDir(), cfg: DefaultConfig(), id: id, states: map[uint64]string{}}
	n.cfg.Target, n.cfg.Recipients = "file://"+t.TempDir(), []string{id.Recipient().String()}
	who, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(n.path(), who)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n.boot()
}

func (n *node) path() string { return filepath.Join(n.dir, "ronbox.db") }

func (n *node) boot(more ...*store.Bucket) *node {
	n.t.Helper()
	cat, ahead := flow.NewCatalog(nil, nil), n.ahead
	now := func() time.Time { return time.Now().Add(ahead) }
	var err error
	n.arc, err = New(n.cfg, Deps{
		Dir: filepath.Join(n.dir, Folder), Catalog: cat, Log: hclog.NewNullLogger(), Now: now,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.arc.pause = func(int) time.Duration { return time.Hour } // beyond the deadline of a test: there is no second try
	sc := store.DefaultConfig()
	sc.MinFree, sc.MaxBytes, sc.LockTimeout = 0, 64<<20, 0
	tap := n.arc.Tap()
	if n.wrap != nil {
		tap = n.wrap(tap)
	}
	n.store = store.New(sc, store.Options{
		Path: n.path(), Catalog: cat, Tap: tap, Now: now,
		Migrations: []store.Migration{{From: 1}, {From: 4}, {From: 5}, {From: 6}},
	})
	n.store.Declare("test", append(more, rows)...)
	err = n.store.Open(n.t.Context())
	if err == nil {
		err = n.store.Prepare(n.t.Context())
	}
	if err == nil {
		err = n.arc.Bind(n.store)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.ended = make(chan struct{})
	go func() {
		defer close(n.ended)
		_ = n.store.Tasks()[0].Run(context.Background())
	}()
	return n
}

func (n *node) stop() {
	n.t.Helper()
	n.store.CloseLanes()
	<-n.ended
	if err := errors.Join(n.arc.Close(), n.store.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// rewinds replaces the file of a stopped node by that of an earlier command, and boots it.
func (n *node) rewinds(seq uint64) {
	n.t.Helper()
	m, err := n.history().Restore(n.t.Context(), n.t.TempDir(), history.Moment{Seq: seq}, n.options())
	if err == nil {
		_, err = store.Restore(n.t.Context(), m.Manifest.Path, n.path(),
			store.RestoreOptions{Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "allow"}}, nil)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.boot()
	if err := n.store.AcceptRestore(n.t.Context(), store.Event{Event: "db.accept"}); err != nil {
		n.t.Fatal(err)
	}
}

// killed returns a node on a copy of the files of n as they are now, which does not run.
func (n *node) killed() *node {
	n.t.Helper()
	k := *n
	k.dir = n.t.TempDir()
	if err := os.CopyFS(k.dir, os.DirFS(n.dir)); err != nil {
		n.t.Fatal(err)
	}
	return &k
}

// put commits a command and notes the state after it.
func (n *node) put(key string, bytes int) uint64 {
	n.t.Helper()
	seq, err := store.Commit(n.t.Context(), n.store, store.Work, put{key, bytes})
	if err != nil {
		n.t.Fatal(err)
	}
	n.states[seq] = n.hash()
	return seq
}

func (n *node) hash() (hash string) {
	n.t.Helper()
	err := n.store.View(n.t.Context(), func(r store.Reader) error {
		hash = store.StateHash(r, n.store.Buckets()).String()
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return hash
}

// pump runs the tasks until everything is in the target.
func (n *node) pump() {
	n.t.Helper()
	if err := n.pumps(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) pumps() error {
	for range 3 { // a line, its base, what follows
		n.arc.rotated = time.Time{}
		if err := errors.Join(n.arc.keep(n.t.Context()), n.arc.pack(n.t.Context())); err != nil {
			return err
		}
		for {
			ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Minute)
			sent, err := n.arc.send(ctx)
			cancel()
			if err != nil {
				return err
			}
			if !sent {
				break
			}
		}
	}
	return nil
}

func (n *node) target() target.Target {
	n.t.Helper()
	to, err := target.Parse(n.cfg.Target, n.cfg.Server())
	if err != nil {
		n.t.Fatal(err)
	}
	return to
}

func (n *node) history() *history.Archive {
	n.t.Helper()
	a, err := history.Open(n.t.Context(), n.target(), "")
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

func (n *node) options() history.Options {
	return history.Options{Identities: []age.Identity{n.id}}
}

// restores checks that every command since from is restored to its state.
func (n *node) restores(from uint64) {
	n.t.Helper()
	for seq, want := range n.states {
		if seq < from {
			continue
		}
		out, err := n.history().Restore(n.t.Context(), n.t.TempDir(), history.Moment{Seq: seq}, n.options())
		if err != nil || out.Manifest.StateHash.String() != want || out.Manifest.Seq != seq {
			n.t.Errorf("command %d: %v, state %s, want %s", seq, err, out.Manifest.StateHash, want)
		}
	}
}

// sound checks that nothing is wrong with the target.
func (n *node) sound() history.Checked {
	n.t.Helper()
	c, err := n.history().Verify(n.t.Context(), n.options())
	if err != nil || len(c.Findings) > 0 {
		n.t.Errorf("%+v, %v", c, err)
	}
	return c
}

func (n *node) root() string { return strings.TrimPrefix(n.cfg.Target, "file://") }

// objects returns the names of all objects.
func (n *node) objects() (all []string) {
	n.t.Helper()
	err := n.target().List(n.t.Context(), "", "", func(i target.Item) bool {
		if i.Name != target.Mark {
			all = append(all, i.Name)
		}
		return true
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}
