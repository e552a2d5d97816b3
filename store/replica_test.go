package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/flow"
)

// fakeLog is a log of one node. Its hook, which may be nil, decides each proposal.
type fakeLog struct {
	hook    func(e []byte) error
	mu      sync.Mutex
	last    uint64
	entries []Placed
	applied []Place
}

func (l *fakeLog) Propose(_ context.Context, e []byte) (Place, error) {
	if l.hook != nil {
		if err := l.hook(e); err != nil {
			return Place{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last += 2 // the log has other records, too
	at := Place{Index: l.last + 1, Term: 1}
	l.entries = append(l.entries, Placed{at, e})
	return at, nil
}

func (l *fakeLog) Applied(at Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied = append(l.applied, at)
}

// taken returns the entries so far. It reports an error unless each was followed by one Applied.
func (l *fakeLog) taken(t testing.TB) []Placed {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var places []Place
	for _, e := range l.entries {
		places = append(places, e.Place)
	}
	if !slices.Equal(places, l.applied) {
		t.Errorf("proposed %v, applied %v", places, l.applied)
	}
	return l.entries
}

// clusterTemplate is a fresh file of a clustered node, made once.
var clusterTemplate = sync.OnceValues(func() (raw []byte, err error) {
	dir, err := os.MkdirTemp("", "ronbox-store")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if raw, err = template(); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ronbox.db")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return nil, err
	}
	first := &Membership{Index: 1, Raw: []byte("self"), Applied: Applied{Place: Place{1, 1}, Origin: "init"}}
	if err := SetMembership(path, first); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func clusterFile(t testing.TB) string {
	t.Helper()
	raw, err := clusterTemplate()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ronbox.db")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// member opens a store of a cluster without a running committer, with files that are not synced.
func member(t testing.TB, path string, log Replicator, groups ...Group) *rig {
	t.Helper()
	return memberOf(t, path, testConfig(), log, groups...)
}

func memberOf(t testing.TB, path string, cfg Config, log Replicator, groups ...Group) *rig {
	t.Helper()
	s := New(cfg, Options{Path: path, Strict: true, Replicator: log, Audit: &AuditConfig{Enabled: true, Retain: 5}})
	s.Declare("test", testRows, testDerived, testLog, testSubs)
	s.Declare("other", otherRows)
	for _, g := range groups {
		s.RegisterGroup(g)
	}
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.db.NoSync = true
	return &rig{Store: s, t: t}
}

// lead makes r the leader and starts its committer.
func (r *rig) lead() *rig {
	r.t.Helper()
	if err := r.Lead(); err != nil {
		r.t.Fatal(err)
	}
	return r.start()
}

// dump returns every row of the file but those of the bucket local.
func (r *rig) dump() string {
	r.t.Helper()
	var out strings.Builder
	var walk func(name string, b *bolt.Bucket) error
	walk = func(name string, b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(name+" "+string(k), b.Bucket(k))
			}
			_, err := fmt.Fprintf(&out, "%s %q %x\n", name, k, v)
			return err
		})
	}
	err := r.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == localBucket.Name {
				return nil
			}
			return walk(string(name), b)
		})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.String()
}

// A command is proposed before anybody can see it, and answered after the log was told to go on.
func TestProposal(t *testing.T) {
	g := &tally{}
	log := &fakeLog{}
	r := member(t, clusterFile(t), log, g)
	before := r.Applied()
	log.hook = func(e []byte) error {
		if r.get("count") != "" || r.Info().Seq != 0 || r.Applied() != before || g.total != 0 {
			t.Errorf("while it is proposed: row %q, %+v, total %d", r.get("count"), r.Info(), g.total)
		}
		if r.CommitAge() != 0 {
			t.Error("the wait for a quorum counts as a commit")
		}
		return nil
	}
	r.KeepMembers(2, []byte("all"))
	r.inUseUnset = true
	r.lead()
	mustCommit(r, count(7, nil), func(int) {
		if r.Info().Seq != 1 || r.Applied().Index == 1 || g.total != 7 {
			t.Errorf("after the commit: %+v, %+v, total %d", r.Info(), r.Applied(), g.total)
		}
	})
	es := log.taken(t)
	want := Applied{Place: es[0].Place, Chain: entrySum(es[0].Entry)}
	if len(es) != 1 || r.Applied() != want || r.get("count") != "\x07" {
		t.Errorf("%d entries, %+v, want %+v", len(es), r.Applied(), want)
	}
	e, err := parseEntry(es[0].Entry, MaxEntry)
	buckets := map[string]int{}
	for _, o := range e.ops {
		buckets[o.bucket]++
	}
	if err != nil || len(buckets) != 2 || buckets["test/rows"] != 1 || buckets["meta"] != 1 {
		t.Errorf("the entry has %v, %v", buckets, err) // and no local row
	}
	r.stop()
	m, err := ReadMembership(r.Path())
	if err != nil || m.Index != 2 || string(m.Raw) != "all" || m.Applied != want {
		t.Errorf("%+v, %v", m, err)
	}
}

// No command writes local rows, not even one of the store.
func TestLocalRowsAreOfNoCommand(t *testing.T) {
	r := member(t, clusterFile(t), &fakeLog{}).lead()
	for what, write := range map[string]func(w *Writes){
		"put":   func(w *Writes) { w.Put(localBucket, keyApplied, nil) },
		"clear": func(w *Writes) { w.Clear(localBucket) },
	} {
		for _, kind := range []string{"store.local/1", "test.local/1"} {
			c := do[int]{kind, func(_ Reader, _ Stamp, w *Writes) (int, error) {
				write(w)
				return 0, nil
			}}
			if _, err := Commit(t.Context(), r.Store, Control, c); !errors.Is(err, ErrInternal) {
				t.Errorf("%s, %s: %v", what, kind, err)
			}
		}
	}
	r.stop()
}

// A group in which nothing was written is not proposed.
func TestNothingToPropose(t *testing.T) {
	log := &fakeLog{}
	r := member(t, clusterFile(t), log)
	r.lead()
	if _, err := Commit(t.Context(), r.Store, Work, put{Key: "k", Refuse: true}); !errors.Is(err, errRefused) {
		t.Error(err)
	}
	r.stop()
	r = member(t, r.Path(), log)
	r.inUseUnset = true
	var g group
	g.open(r.Store)
	if err := g.run(t.Context(), nil); err != nil { // a probe
		t.Error(err)
	}
	if es := log.taken(t); len(es) != 0 {
		t.Errorf("%d entries", len(es))
	}
	r.stop()
}

// A store that lost its office answers what it took as the proposal ended, refuses the rest, and is
// not poisoned.
func TestDeposed(t *testing.T) {
	lost := errors.New("leadership lost")
	for _, tt := range []struct {
		name   string
		err    error
		taken  error
		denied error
	}{
		{"in no log", &NothingError{lost}, ErrNotLeader, ErrUnknown},
		{"perhaps in a log", lost, ErrUnknown, ErrNotLeader},
	} {
		g := &tally{}
		log := &fakeLog{}
		r := member(t, clusterFile(t), log, g)
		in, out := make(chan struct{}), make(chan struct{})
		log.hook = func([]byte) error {
			close(in)
			<-out
			return tt.err
		}
		// all in one group
		ends := make([]error, 3)
		cmds := []Command[int]{count(1, nil), count(2, errRefused), count(4, nil)}
		var wg sync.WaitGroup
		if err := r.Lead(); err != nil {
			t.Fatal(err)
		}
		for i, c := range cmds {
			wg.Go(func() { _, ends[i] = Commit(t.Context(), r.Store, Work, c) })
			r.awaitQueued(Work, i+1)
		}
		r.start()
		<-in
		var queued, handed error
		wg.Go(func() { _, queued = Commit(t.Context(), r.Store, Bulk, put{Key: "queued"}) })
		r.awaitQueued(Bulk, 1)
		wg.Add(1)
		if err := Hand(t.Context(), r.Store, Control, put{Key: "handed"}, func(_ uint64, err error) {
			handed = err
			wg.Done()
		}); err != nil {
			t.Fatal(err)
		}
		close(out)
		wg.Wait()
		<-r.Deposed()
		<-r.done
		for i, err := range []error{ends[0], ends[2]} {
			if !errors.Is(err, tt.taken) || errors.Is(err, tt.denied) || errors.Is(err, ErrPoisoned) {
				t.Errorf("%s: command %d: %v", tt.name, i, err)
			}
		}
		for name, err := range map[string]error{"refused": ends[1], "queued": queued, "handed": handed} {
			if !errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %s: %v", tt.name, name, err)
			}
		}
		checkDeposed(t, r)
		if want := []string{"begin", "then", "then", "aborted"}; !slices.Equal(g.calls, want) || g.total != 0 {
			t.Errorf("%s: calls %v, total %d", tt.name, g.calls, g.total)
		}
		log.taken(t)
		r.stop()
	}
}

func checkDeposed(t *testing.T, r *rig) {
	t.Helper()
	if r.Err() != nil || !errors.Is(r.end, flow.ErrOver) || r.Health() != nil {
		t.Errorf("store %v, committer %v, health %v", r.Err(), r.end, r.Health())
	}
	if r.get("count") != "" || r.Info().Seq != 0 || r.Applied().Origin != "init" {
		t.Errorf("row %q, %+v, %+v", r.get("count"), r.Info(), r.Applied())
	}
	checkNotLeading(t, r)
	if err := r.Lead(); err == nil {
		t.Error("it leads again")
	}
	if err := r.Follow(t.Context(), []Placed{{Place{9, 9}, []byte("x")}}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("follow: %v", err)
	}
}

// checkNotLeading checks that no command is accepted.
func checkNotLeading(t *testing.T, r *rig) {
	t.Helper()
	for l := range Lane(lanes) {
		if _, err := Commit(t.Context(), r.Store, l, put{Key: "k"}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("commit, %s: %v", l, err)
		}
		if _, err := TryCommit(t.Context(), r.Store, l, put{Key: "k"}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("try, %s: %v", l, err)
		}
		if err := Hand(t.Context(), r.Store, l, put{Key: "k"}, nil); !errors.Is(err, ErrNotLeader) {
			t.Errorf("hand, %s: %v", l, err)
		}
		if n := r.lanes[l].Len(); n != 0 {
			t.Errorf("%s: %d commands are queued", l, n)
		}
	}
}

// After a quorum has the entry every failure poisons the store, and the log goes on once.
func TestFailuresAfterAQuorum(t *testing.T) {
	noRoom := func(r *rig) {
		hookWrites(t, r.db, func([]byte, int64) (int, error) {
			return 0, &os.PathError{Op: "write", Path: r.Path(), Err: errNoSpace}
		})
	}
	for name, hook := range map[string]func(*rig){
		"no room":  noRoom,
		"poisoned": func(r *rig) { r.poison(errors.New("a view has met a fault"), false) },
		"a panic":  func(*rig) { panic("a bug") },
	} {
		log := &fakeLog{}
		r := member(t, clusterFile(t), log)
		log.hook = func([]byte) error {
			hook(r)
			return nil
		}
		_, err := Commit(t.Context(), r.lead().Store, Work, put{Key: "k"})
		if !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrUnknown) || errors.Is(err, ErrDied) != (name == "a panic") {
			t.Errorf("%s: %v", name, err)
		}
		if r.Err() == nil {
			t.Fatalf("%s: not poisoned", name)
		}
		r.abandon()
		if es := log.taken(t); (len(es) == 0) != (name == "a panic") {
			t.Errorf("%s: %d entries", name, len(es))
		}
		select {
		case <-r.Deposed():
			t.Errorf("%s: deposed", name)
		default:
		}
		if rep, err := Verify(t.Context(), r.Path(), nil, nil, nil); err != nil || !rep.OK || rep.Info.Seq != 0 {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
}

// A caller that panics on its answer ends the store, and the log is told once all the same.
func TestAppliedOnce(t *testing.T) {
	log := &fakeLog{}
	r := member(t, clusterFile(t), log).lead()
	if err := Hand(t.Context(), r.Store, Work, put{Key: "k"}, func(uint64, error) { panic("a bug") }); err != nil {
		t.Fatal(err)
	}
	<-r.Failed()
	r.abandon()
	if es := log.taken(t); len(es) != 1 || r.Applied().Place != es[0].Place {
		t.Errorf("%d entries, %+v", len(es), r.Applied())
	}
}

// What may not fit is refused before it is proposed.
func TestRoomBeforeAProposal(t *testing.T) {
	cfg := testConfig()
	cfg.MaxBytes = minBytes
	log := &fakeLog{}
	r := memberOf(t, clusterFile(t), cfg, log).lead()
	value := string(make([]byte, MaxValue))
	var err error
	n := 0
	for ; err == nil && n < 100; n++ { // a full store accepts control commands
		_, err = Commit(t.Context(), r.Store, Control, put{Key: fmt.Sprintf("%03d", n), Value: value})
	}
	if !errors.Is(err, ErrFull) || r.Err() != nil || n < 30 || len(log.taken(t)) != n-1 {
		t.Fatalf("after %d MiB: %v, store %v, %d entries", n, err, r.Err(), len(log.taken(t)))
	}
	for i := range 10 { // deletions find room
		if _, err := Commit(t.Context(), r.Store, Control, remove{fmt.Sprintf("%03d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
}

// The map of the file is as large as the file can become: a commit beyond max_bytes waits for no
// reader.
func TestMapBeyondMaxBytes(t *testing.T) {
	cfg := testConfig()
	cfg.MaxBytes = minBytes
	r := memberOf(t, clusterFile(t), cfg, &fakeLog{})
	mapped := *(*int)(fieldOf(t, r.db, "datasz", unsafe.Sizeof(0)))
	if mapped < r.db.MaxSize || r.db.MaxSize != minBytes+overshoot {
		t.Errorf("%d bytes are mapped, the file may have %d", mapped, r.db.MaxSize)
	}
	r.stop()
}

// remove deletes a row.
type remove struct{ key string }

func (remove) Kind() string { return "test.remove/1" }

func (c remove) Apply(_ Reader, _ Stamp, w *Writes) (struct{}, error) {
	rows.Delete(w, c.key)
	return struct{}{}, nil
}

// wide writes n rows of size bytes and as many audit rows.
type wide struct{ n, size, events int }

func (wide) Kind() string { return "test.wide/1" }

func (c wide) Apply(_ Reader, at Stamp, w *Writes) (uint64, error) {
	for i := range c.n {
		rows.Put(w, fmt.Sprintf("%d/%d", at.Seq, i), bytes.Repeat([]byte{1}, c.size))
	}
	detail := map[string]string{}
	for i := range maxDetail {
		detail[fmt.Sprint(i)] = strings.Repeat("d", maxField)
	}
	for range c.events {
		w.Audit(Event{Event: "wide", Detail: detail})
	}
	return at.Seq, nil
}

// Commands whose rows do not fit into one entry are written as several. One that is larger than an
// entry may be is refused, and nothing else.
func TestLargeGroups(t *testing.T) {
	log := &fakeLog{}
	r := member(t, clusterFile(t), log)
	if err := r.Lead(); err != nil {
		t.Fatal(err)
	}
	cmds := []wide{
		{8, 100 << 10, 0},
		{8, 100 << 10, 0},
		{1, 10, 0},
		{5, 1 << 20, 0},
		{1, 10, 0},
		{39, 100 << 10, 0},
		{1, 1, 0},
	}
	ends := make([]error, len(cmds))
	var wg sync.WaitGroup
	for i, c := range cmds {
		wg.Go(func() { _, ends[i] = Commit(t.Context(), r.Store, Work, c) })
		r.awaitQueued(Work, i+1)
	}
	r.start()
	wg.Wait()
	for i, err := range ends {
		if (i == 3) != errors.Is(err, ErrTooLarge) || err != nil && i != 3 {
			t.Errorf("command %d: %v", i, err)
		}
	}
	if es := log.taken(t); len(es) != 3 || r.Info().Seq != 6 {
		t.Errorf("%d entries, seq %d", len(es), r.Info().Seq)
	}
	if _, err := Commit(t.Context(), r.Store, Work, wide{1, 1, 40}); !errors.Is(err, ErrTooLarge) ||
		!strings.Contains(err.Error(), fmt.Sprint(MaxEntry)) || r.Err() != nil {
		t.Errorf("an entry above the limit: %v, store %v", err, r.Err())
	}
	if mustCommit(r, wide{1, 1, 1}) != 7 {
		t.Error("its stamp was used up")
	}
	r.stop()
}
