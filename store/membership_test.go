package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
)

// testMembership is that of a file as `cluster init` leaves it.
func testMembership() *Membership {
	return &Membership{
		Index:   1,
		Raw:     []byte("one voter"),
		Applied: Applied{Place: Place{Index: 1, Term: 1}, Chain: b3.Sum([]byte("chain")), Origin: "init"},
	}
}

// asSchema2 gives a file the layout of schema 2.
func asSchema2(t testing.TB, path string) {
	t.Helper()
	edited(t, path, func(tx *bolt.Tx) error {
		info, err := readInfo(tx)
		if err != nil {
			return err
		}
		meta := tx.Bucket([]byte(metaBucket.Name))
		info.Schema = localSchema - 1
		return errors.Join(
			meta.Put(keyBuckets, localRows(tx).Get(keyBuckets)),
			tx.DeleteBucket([]byte(localBucket.Name)),
			writeInfo(tx, info),
		)
	})
}

// edited runs fn in a transaction of a file that no store has open.
func edited(t testing.TB, path string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := openBolt(path, &opening{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// What is written is read, and nil makes the file that of a node alone again.
func TestMembershipRoundTrip(t *testing.T) {
	path := counted(t, 2)
	if m, err := ReadMembership(path); err != nil || m != nil {
		t.Fatalf("a node alone: %+v, %v", m, err)
	}
	for _, origin := range origins {
		want := testMembership()
		want.Applied.Origin = origin
		if err := SetMembership(path, want); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadMembership(path); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || !rep.Info.Clean {
		t.Errorf("%+v, %v", rep, err)
	}
	if err := SetMembership(path, nil); err != nil {
		t.Fatal(err)
	}
	s := newStore(path, testConfig())
	if err := errors.Join(ready(t.Context(), s), s.Close()); err != nil {
		t.Errorf("alone again: %v", err)
	}
}

// A file is bound to its log by a write of its own. A file that becomes that of another copy or
// another cluster is bound to none.
func TestBindLog(t *testing.T) {
	r := member(t, clusterFile(t), &fakeLog{})
	before, rows := r.Applied(), r.dump()
	r.start()
	id := []byte("the log of it all")
	if err := r.BindLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r.Applied() != before || r.dump() != rows {
		t.Errorf("applied %+v, rows %s", r.Applied(), r.dump())
	}
	if err := r.Lead(); err != nil {
		t.Fatal(err)
	}
	if err := r.BindLog(t.Context(), []byte("another")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("after Lead: %v", err)
	}
	mustCommit(r, put{Key: "a"})
	r.stop()
	bound := func(want []byte) *Membership {
		t.Helper()
		m, err := ReadMembership(r.Path())
		if err != nil || !bytes.Equal(m.Log, want) {
			t.Fatalf("%+v, %v, want log %q", m, err, want)
		}
		return m
	}
	m := bound(id)
	m.Applied.Origin = "install"
	if err := SetMembership(r.Path(), m); err != nil {
		t.Fatal(err)
	}
	bound(nil)
	edited(t, r.Path(), func(tx *bolt.Tx) error { return localRows(tx).Put(keyLog, AddSum(keyLog, id)) })
	bound(id)
	if _, err := Reincarnate(r.Path(), Event{Event: "recover"}, m); err != nil {
		t.Fatal(err)
	}
	bound(nil)
	edited(t, r.Path(), func(tx *bolt.Tx) error { return localRows(tx).Put(keyLog, id) })
	if _, err := ReadMembership(r.Path()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged row: %v", err)
	}
}

// Memberships that no log could have written are refused, and leave the file as it was.
func TestMembershipIsChecked(t *testing.T) {
	path := counted(t, 1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Membership){
		"no index":         func(m *Membership) { m.Index = 0 },
		"no place":         func(m *Membership) { m.Applied.Index = 0 },
		"no term":          func(m *Membership) { m.Applied.Term = 0 },
		"no configuration": func(m *Membership) { m.Raw = nil },
		"a long one":       func(m *Membership) { m.Raw = make([]byte, MaxValue+1) },
		"another origin":   func(m *Membership) { m.Applied.Origin = "elsewhere" },
	} {
		m := testMembership()
		edit(m)
		if err := SetMembership(path, m); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed, %v", err)
	}
	edited(t, path, func(tx *bolt.Tx) error { return putMembers(localRows(tx), &memberRow{1, []byte("x")}) })
	if _, err := ReadMembership(path); !errors.Is(err, ErrCorrupt) {
		t.Errorf("members without a place: %v", err)
	}
}

// Nobody but a node with a log writes to the file of a clustered node.
func TestClusteredIsRefused(t *testing.T) {
	snapshot, path := snapshotOf(t), counted(t, 2)
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(path, testConfig())
	if err := s.Open(t.Context()); !errors.Is(err, ErrClustered) || !strings.Contains(err.Error(), path) {
		t.Errorf("open: %v", err)
	}
	if _, err := Migrate(t.Context(), path, "", nil, nil); !errors.Is(err, ErrClustered) {
		t.Errorf("migrate: %v", err)
	}
	newer := lifted(path, lifts(7), nil)
	newer.opt.Replicator = &idleLog{}
	if err := newer.Open(t.Context()); !errors.Is(err, ErrClustered) {
		t.Errorf("open by a newer program: %v", err)
	}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil); !errors.Is(err, ErrClustered) {
		t.Errorf("restore: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed, %v", err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// idleLog is a log to which nothing is proposed.
type idleLog struct{ Replicator }

// A node with a log opens the file, knows its place, and writes the configuration that it kept when
// it closes.
func TestClusteredOpens(t *testing.T) {
	path := counted(t, 2)
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	s := newStore(path, testConfig())
	s.opt.Replicator = &idleLog{}
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.Applied(); got != testMembership().Applied {
		t.Errorf("applied %+v", got)
	}
	s.KeepMembers(7, []byte("three voters"))
	s.KeepMembers(5, []byte("two voters")) // a log that is read again
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := ReadMembership(path)
	if err != nil || m.Index != 7 || string(m.Raw) != "three voters" || m.Applied != testMembership().Applied {
		t.Errorf("%+v, %v", m, err)
	}
}

// A compaction and a snapshot of a clustered file are clustered; what is restored from the snapshot
// is not.
func TestClusteredIsCopied(t *testing.T) {
	path := counted(t, 2)
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	s := newStore(path, testConfig())
	s.opt.Replicator = &idleLog{}
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	shot, err := s.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{}, nil)
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, shot.Path} {
		if m, err := ReadMembership(file); err != nil || !reflect.DeepEqual(m, testMembership()) {
			t.Errorf("%s: %+v, %v", file, m, err)
		}
	}
	alone := filepath.Join(t.TempDir(), "alone.db")
	if _, err := Restore(t.Context(), shot.Path, alone, RestoreOptions{Now: day}, nil); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMembership(alone); err != nil || m != nil {
		t.Errorf("restored: %+v, %v", m, err)
	}
}

// A file that was received while its sender ran counts as closed in order; that of a killed node
// does not.
func TestReceivedFileIsClean(t *testing.T) {
	path := counted(t, 1)
	edited(t, path, func(tx *bolt.Tx) error { return putClean(tx, false) })
	for _, origin := range []string{"init", "install"} {
		m := testMembership()
		m.Applied.Origin = origin
		if err := SetMembership(path, m); err != nil {
			t.Fatal(err)
		}
		r, err := OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		if clean := r.Info().Clean; clean != (origin == "install") || r.Close() != nil {
			t.Errorf("%s: clean %t", origin, clean)
		}
	}
}

// Reincarnate keeps the rows and the place, in the next term.
func TestReincarnate(t *testing.T) {
	path := counted(t, 2)
	by := Event{Event: "cluster.recover", Decision: "allow"}
	if _, err := Reincarnate(path, by, testMembership()); err == nil {
		t.Error("a node alone was recovered")
	}
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	before, err := Verify(t.Context(), path, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := Reincarnate(path, by, &Membership{Index: 9, Raw: []byte("me")})
	if err != nil {
		t.Fatal(err)
	}
	after, err := Verify(t.Context(), path, nil, nil, nil)
	if err != nil || !after.OK || after.Info != info || after.StateHash != before.StateHash {
		t.Errorf("%+v, %v, want %+v", after, err, info)
	}
	if info.Incarnation == before.Info.Incarnation || info.AuditSeq != before.Info.AuditSeq+1 || !info.Clean {
		t.Errorf("%+v", info)
	}
	want := testMembership()
	want.Index, want.Raw, want.Applied.Term = 9, []byte("me"), 2
	if m, err := ReadMembership(path); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, %v, want %+v", m, err, want)
	}
}

// Of configurations that are kept at the same time, the latest is written.
func TestLatestMembersAreKept(t *testing.T) {
	const callers, calls = 4, 2000
	s := newStore(newFile(t), testConfig())
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range calls {
				s.KeepMembers(uint64(i*callers+caller+1), []byte("voters"))
			}
		})
	}
	wg.Wait()
	if m := s.members.Load(); m.Index != callers*calls {
		t.Errorf("%d is kept", m.Index)
	}
}

// A file that has lost one row of its membership is damaged, not that of a node alone.
func TestHalfAMembership(t *testing.T) {
	for _, key := range [][]byte{keyMembers, keyApplied} {
		path := counted(t, 1)
		if err := SetMembership(path, testMembership()); err != nil {
			t.Fatal(err)
		}
		edited(t, path, func(tx *bolt.Tx) error { return localRows(tx).Delete(key) })
		if m, err := ReadMembership(path); !errors.Is(err, ErrCorrupt) {
			t.Errorf("without %s: %+v, %v", key, m, err)
		}
	}
}

// A change to a file at rest under a clock that is years ahead, or behind, does not take the file
// there.
func TestOfflineStamp(t *testing.T) {
	last := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		doc string
		now time.Time
		at  time.Time
	}{
		{"the node was off", last.Add(30 * 24 * time.Hour), last.Add(30 * 24 * time.Hour)},
		{"behind", last.Add(-time.Hour), last.Add(1)},
	} {
		if at := offlineStamp(tt.now, last.UnixNano()); at != tt.at.UnixNano() {
			t.Errorf("%s: %s, want %s", tt.doc, time.Unix(0, at).UTC(), tt.at)
		}
	}
	far := last.Add(10 * 365 * 24 * time.Hour)
	want := last.Add(1)
	if state, err := host.ReadClock(); err == nil && state.Synchronised {
		want = far // the kernel of this machine says that its clock is right
	}
	if at := offlineStamp(far, last.UnixNano()); at != want.UnixNano() {
		t.Errorf("years ahead: %s, want %s", time.Unix(0, at).UTC(), want)
	}
}
