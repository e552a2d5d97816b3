package store

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

var (
	testRows    = &Bucket{Name: "test/rows"}
	testDerived = &Bucket{Name: "test/derived", Class: Derived}
	testLog     = &Bucket{Name: "test/log", Append: true}
	otherRows   = &Bucket{Name: "other/rows"}
	testSubs    = &Bucket{Name: "test/subs", Subs: true}
	rows        = NewTable(testRows, String[string](), Raw())
	logRows     = NewTable(testLog, U64(), Raw())
)

var (
	errRefused = errors.New("refused")
	day        = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// put writes a row; its other members make it misbehave.
type put struct {
	Key, Value string
	Refuse     bool // after it has filled its buffer
	Panic      bool // likewise
}

func (put) Kind() string { return "test.put/1" }

func (c put) Apply(r Reader, at Stamp, w *Writes) (uint64, error) {
	rows.Put(w, c.Key, []byte(c.Value))
	w.Put(testDerived, []byte(c.Key), []byte{1})
	logRows.Put(w, at.Seq, []byte(c.Key))
	if c.Panic {
		panic("a bug")
	}
	if c.Refuse {
		return 0, errRefused
	}
	return at.Seq, nil
}

// add increments a counter and returns the new value.
type add struct{ Key string }

func (add) Kind() string { return "test.add/1" }

func (c add) Apply(r Reader, _ Stamp, w *Writes) (uint64, error) {
	var n uint64
	if v, ok := rows.Get(r, c.Key); ok {
		n = binary.BigEndian.Uint64(v)
	}
	rows.Put(w, c.Key, binary.BigEndian.AppendUint64(nil, n+1))
	return n + 1, nil
}

// do is a command made of a function.
type do[R any] struct {
	kind string
	fn   func(Reader, Stamp, *Writes) (R, error)
}

func (c do[R]) Kind() string { return c.kind }

func (c do[R]) Apply(r Reader, at Stamp, w *Writes) (R, error) { return c.fn(r, at, w) }

// rig is an open store with a running committer.
type rig struct {
	*Store
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	end    error // of the committer; read after done
}

// template is a fresh file, made once: most tests need one and not the syncs of its making.
var template = sync.OnceValues(func() (raw []byte, err error) {
	dir, err := os.MkdirTemp("", "ronbox-store")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	id, err := NewIdentity(day)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ronbox.db")
	if err := Create(path, id); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func newFile(t testing.TB) string {
	t.Helper()
	raw, err := template()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ronbox.db")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testConfig() Config {
	c := DefaultConfig()
	c.LockTimeout = 0
	return c
}

func newStore(path string, cfg Config) *Store {
	var later []Migration // those of the engines
	for from := namesSchema; from < Schema; from++ {
		later = append(later, Migration{From: from})
	}
	s := New(cfg, Options{Path: path, Strict: true, Migrations: later})
	s.Declare("test", testRows, testDerived, testLog, testSubs)
	s.Declare("other", otherRows)
	return s
}

// ready opens and prepares a store, and lets the file go again if it cannot.
func ready(ctx context.Context, s *Store) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	if err := s.Prepare(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// idle opens a store without a running committer.
func idle(t testing.TB, path string, cfg Config) *rig {
	t.Helper()
	s := newStore(path, cfg)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return &rig{Store: s, t: t}
}

func (r *rig) start() *rig {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.end = r.runCommitter(ctx)
	}()
	return r
}

func open(t testing.TB, path string) *rig {
	t.Helper()
	return idle(t, path, testConfig()).start()
}

// stop drains and closes in order.
func (r *rig) stop() {
	r.t.Helper()
	r.CloseLanes()
	if r.done != nil {
		<-r.done
		r.cancel()
	}
	if r.end != nil && !errors.Is(r.end, flow.ErrOver) {
		r.t.Errorf("committer: %v", r.end)
	}
	if err := r.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

// abandon ends a poisoned store as a kill of the process would, without writes.
func (r *rig) abandon() {
	r.t.Helper()
	<-r.done
	r.cancel()
	// Not db.Close, which waits for the transaction that was left open. The lock goes with the last
	// reference to the file, the map.
	mapped := *(*[]byte)(fieldOf(r.t, r.db, "dataref", unsafe.Sizeof([]byte{})))
	if err := errors.Join(fileOf(r.t, r.db).Close(), unix.Munmap(mapped)); err != nil {
		r.t.Error(err)
	}
}

// fileOf reaches the descriptor bbolt writes to.
func fileOf(t testing.TB, db *bolt.DB) *os.File {
	t.Helper()
	return *(**os.File)(fieldOf(t, db, "file", unsafe.Sizeof(uintptr(0))))
}

// fieldOf reaches an unexported field of bbolt.DB, and fails loudly once it is not there any more.
func fieldOf(t testing.TB, db *bolt.DB, name string, size uintptr) unsafe.Pointer {
	t.Helper()
	field := reflect.ValueOf(db).Elem().FieldByName(name)
	if !field.IsValid() || field.Type().Size() != size {
		t.Fatalf("bbolt.DB has no field %s of %d bytes any more", name, size)
	}
	return field.Addr().UnsafePointer()
}

func (r *rig) get(key string) string {
	r.t.Helper()
	var out []byte
	if err := r.View(r.t.Context(), func(rd Reader) error {
		out, _ = rows.Get(rd, key)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

func (r *rig) hash() string {
	r.t.Helper()
	var out string
	if err := r.View(r.t.Context(), func(rd Reader) error {
		out = StateHash(rd, []*Bucket{testRows, testDerived, testLog, otherRows}).String()
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// awaitQueued yields until n commands lie in a lane that nobody empties.
func (r *rig) awaitQueued(l Lane, n int) {
	for r.lanes[l].Len() < n {
		runtime.Gosched()
	}
}

func mustCommit[R any](r *rig, c Command[R], after ...func(R)) R {
	r.t.Helper()
	out, err := Commit(r.t.Context(), r.Store, Work, c, after...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
