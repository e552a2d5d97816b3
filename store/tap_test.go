package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// fakeTap keeps entries in memory.
type fakeTap struct {
	entries [][]byte
	held    int // entries before the last Write
	keeps   bool
}

func (f *fakeTap) Last() (sum b3.Digest) {
	if n := len(f.entries); n > 0 {
		sum = HeadOf(f.entries[n-1]).Sum
	}
	return sum
}

func (f *fakeTap) Write(entries ...[]byte) {
	f.held = len(f.entries)
	for _, e := range entries {
		f.entries = append(f.entries, bytes.Clone(e))
	}
}

func (f *fakeTap) Undo() {
	if !f.keeps {
		f.entries = f.entries[:f.held]
	}
}

// edit is a command that makes drawn changes.
type edit struct {
	Ops    []string // a letter for the change, then a key
	Refuse bool
}

func (edit) Kind() string { return "test.edit/1" }

func (c edit) Apply(_ Reader, at Stamp, w *Writes) (uint64, error) {
	for i, o := range c.Ops {
		key, sub := []byte(o[1:]), testSubs.Sub(o[1:])
		switch o[0] {
		case 'p':
			w.Put(testRows, key, fmt.Appendf(nil, "%d %d", at.Seq, i))
		case 'l':
			w.Put(testRows, key, bytes.Repeat([]byte{byte(at.Seq)}, 3*PageSize))
		case 'd':
			w.Delete(testRows, key)
		case 's':
			w.Put(sub, fmt.Appendf(nil, "%d", i), key)
		case 'x':
			w.Drop(sub)
		case 'c':
			w.Clear(testDerived)
		case 'v':
			w.Put(testDerived, key, nil)
		case 'a':
			w.Audit(Event{Event: "test." + o[1:], Decision: "allow"})
		}
	}
	if c.Refuse {
		return 0, errRefused
	}
	return at.Seq, nil
}

// happening is one group of a history, which may fail, and a restart after it.
type happening struct {
	cmds    []edit
	aborts  bool
	restart bool
}

func drawHistory(t *rapid.T) []happening {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) happening {
		return happening{
			cmds: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) edit {
				return edit{
					Ops:    rapid.SliceOfN(rapid.StringMatching(`[pldsxcva][a-d]`), 1, 6).Draw(t, "ops"),
					Refuse: rapid.IntRange(0, 4).Draw(t, "refuse") == 0,
				}
			}), 1, 4).Draw(t, "cmds"),
			aborts:  rapid.IntRange(0, 3).Draw(t, "aborts") == 0,
			restart: rapid.IntRange(0, 5).Draw(t, "restart") == 0,
		}
	}), 1, 10).Draw(t, "history")
}

// tapped opens a store with a tap and without a running committer.
func tapped(t testing.TB, path string, tap Tap) *rig {
	t.Helper()
	r := idle(t, path, testConfig())
	r.opt.Tap = tap
	r.audit.Store(&AuditConfig{Enabled: true, Retain: 3})
	r.db.NoSync = true
	return r
}

// turn runs one group.
func (r *rig) turn(h happening) error {
	var g group
	g.open(r.Store)
	file := fileOf(r.t, r.db)
	if h.aborts {
		hookWrites(r.t.(*testing.T), r.db, func([]byte, int64) (int, error) {
			return 0, &fs.PathError{Op: "write", Path: r.Path(), Err: syscall.ENOSPC}
		})
		defer hookWrites(r.t.(*testing.T), r.db, file.WriteAt)
	}
	batch := make([]job, len(h.cmds))
	for i, c := range h.cmds {
		batch[i] = newRequest(r.t.Context(), 0, Control, Command[uint64](c), nil)
	}
	return g.run(context.Background(), batch)
}

// dumpOf returns every row of a file but those of bucket local.
func dumpOf(t testing.TB, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	out := (&rig{Store: &Store{db: db}, t: t}).dump()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// copied copies a file and returns the path of the copy.
func copied(t testing.TB, from string) string {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// live runs a history. It returns a copy of the file at group base, and the state of the file after
// each group from there.
func live(t testing.TB, tap *fakeTap, hs []happening, base int) (path string, states []string) {
	t.Helper()
	r := tapped(t, newFile(t), tap)
	for i, h := range hs {
		if i == base {
			path = copied(t, r.Path())
		}
		was := r.Info().Position()
		if err := r.turn(h); err != nil {
			t.Fatal(err)
		}
		if i >= base && r.Info().Position() != was {
			states = append(states, r.dump())
		}
		if h.restart {
			at := r.Path()
			r.stop()
			r = tapped(t, at, tap)
		}
	}
	r.stop()
	return path, states
}

// replays applies entries one by one to a file, and returns an error unless each leads to the next
// of the states.
func replays(t testing.TB, path string, entries [][]byte, states []string) error {
	t.Helper()
	for _, raw := range entries {
		r, err := OpenReplay(path)
		if err != nil {
			return err
		}
		was := r.Info().Position()
		err = errors.Join(r.Apply([][]byte{raw}), r.db.Sync(), r.Close())
		if err != nil {
			return err
		}
		if r.Info().Position() == was {
			continue // before the copy
		}
		if len(states) == 0 {
			return fmt.Errorf("command %d is of no state", r.Info().Seq)
		}
		if got := dumpOf(t, path); got != states[0] {
			return fmt.Errorf("command %d: the rows are\n%s, not\n%s", r.Info().Seq, got, states[0])
		}
		states = states[1:]
	}
	rep, err := Verify(t.Context(), path, nil, nil, nil)
	if err == nil && !rep.OK {
		err = errors.New(rep.Problem)
	}
	if len(states) > 0 {
		err = errors.Join(err, fmt.Errorf("%d states are of no entry", len(states)))
	}
	return err
}

// At every boundary of an entry, a copy of an earlier file and the entries since give the rows that
// the file had, whatever was refused, rolled back or stopped between.
func TestEntriesRestoreTheFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hs := drawHistory(rt)
		base := rapid.IntRange(0, len(hs)-1).Draw(rt, "base")
		tap := &fakeTap{}
		path, states := live(t, tap, hs, base)
		if err := replays(t, path, tap.entries, states); err != nil {
			rt.Error(err)
		}
	})
}

// The law fails if a tap keeps what was rolled back, if a change is missing, and if entries change
// places.
func TestEntriesOfAnotherHistory(t *testing.T) {
	hs := []happening{
		{cmds: []edit{{Ops: []string{"pa", "pb"}}}},
		{cmds: []edit{{Ops: []string{"pc"}}}, aborts: true},
		{cmds: []edit{{Ops: []string{"da"}}}},
		{cmds: []edit{{Ops: []string{"sb"}}}, restart: true},
		{cmds: []edit{{Ops: []string{"pd"}}}},
	}
	for _, tt := range []struct {
		name  string
		keeps bool
		spoil func([][]byte)
		want  string // "": the law holds
	}{
		{name: "as it was", spoil: func([][]byte) {}},
		{name: "without Undo", keeps: true, spoil: func([][]byte) {}, want: "the rows are"},
		{name: "a delete skipped", want: "the rows are", spoil: func(es [][]byte) {
			e, err := parseEntry(es[1], MaxTapped)
			if err != nil {
				t.Fatal(err)
			}
			e.ops = slices.DeleteFunc(e.ops, func(o op) bool { return o.kind == opDelete })
			copy(es[1:], [][]byte{e.encode()})
		}},
		{name: "swapped", want: "begins at command", spoil: func(es [][]byte) { es[1], es[2] = es[2], es[1] }},
	} {
		tap := &fakeTap{keeps: tt.keeps}
		path, states := live(t, tap, hs, 0)
		tt.spoil(tap.entries)
		err := replays(t, path, tap.entries, states)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// Entries that do not follow each other, or that need another file, are refused in one call too.
func TestReplayRefuses(t *testing.T) {
	tap := &fakeTap{}
	hs := []happening{
		{cmds: []edit{{Ops: []string{"pa"}}}}, {cmds: []edit{{Ops: []string{"pb"}}}},
		{cmds: []edit{{Ops: []string{"pc"}}}},
	}
	path, _ := live(t, tap, hs, 0)
	foreign := someEntry()
	foreign.ops = []op{{kind: opPut, bucket: "no/rows", key: []byte("k"), value: []byte("v")}}
	es := tap.entries
	broken := bytes.Clone(es[1])
	broken[len(broken)-1]++
	other, err := parseEntry(es[1], MaxTapped)
	if err != nil {
		t.Fatal(err)
	}
	other.prev = b3.Sum(nil)
	for name, tt := range map[string]struct {
		entries [][]byte
		want    error
	}{
		"a gap":            {[][]byte{es[0], es[2]}, ErrDiverged},
		"another chain":    {[][]byte{es[0], other.encode()}, ErrDiverged},
		"another bucket":   {[][]byte{foreign.encode()}, ErrFormat},
		"a flipped byte":   {[][]byte{es[0], broken}, ErrCorrupt},
		"too short":        {[][]byte{es[0][:entryLen-1]}, ErrCorrupt},
		"of a later build": {[][]byte{{entryFormat + 1}}, ErrFormat},
	} {
		r, err := OpenReplay(copied(t, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(tt.entries); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err := r.Apply(es[:2]); err != nil || r.Info().Position() != HeadOf(es[1]).To {
			t.Errorf("%s: the entries that follow: %v", name, err)
		}
		if err := errors.Join(r.Apply(es[:1]), r.Close()); err == nil || r.last == nil {
			t.Errorf("%s: an entry is applied after the one that follows it", name)
		}
	}
}

// A published file is a snapshot of the position that the entries lead to.
func TestReplayPublishes(t *testing.T) {
	tap := &fakeTap{}
	hs := []happening{{cmds: []edit{{Ops: []string{"pa", "aa"}}}}, {cmds: []edit{{Ops: []string{"sb"}}}}}
	path, states := live(t, tap, hs, 0)
	r, err := OpenReplay(path)
	if err == nil {
		err = r.Apply(tap.entries)
	}
	if err != nil {
		t.Fatal(err)
	}
	var ran bool
	check := Check{Name: "test", Run: func(Reader) error {
		ran = true
		return nil
	}}
	m, err := r.Publish(t.Context(), map[string]string{"ronbox": "v"}, []Check{check}, nil)
	if err != nil || !ran || m.Seq != 2 || m.NodeID != r.Info().NodeID {
		t.Fatalf("%+v, %v", m, err)
	}
	rep, err := Verify(t.Context(), m.Path, nil, nil, nil)
	if err != nil || !rep.OK || !rep.Manifest || rep.StateHash != m.StateHash || dumpOf(t, m.Path) != states[1] {
		t.Errorf("%+v, %v", rep, err)
	}
	to := filepath.Join(t.TempDir(), "ronbox.db")
	if _, err := Restore(t.Context(), m.Path, to, RestoreOptions{Now: day}, nil); err != nil {
		t.Error(err)
	}
}

// A follower and a leader give the tap the entries of the log, and a node that was refused by the
// log gives it none.
func TestTapOfMember(t *testing.T) {
	log, lead, follow := &fakeLog{}, &fakeTap{}, &fakeTap{}
	a, b := member(t, clusterFile(t), log), member(t, clusterFile(t), &fakeLog{})
	a.opt.Tap, b.opt.Tap = lead, follow
	a.lead()
	b.start()
	mustCommit(a, put{Key: "k", Value: "v"})
	mustCommit(a, put{Key: "l", Value: "v"})
	es := log.taken(t)
	if err := b.Follow(t.Context(), es); err != nil {
		t.Fatal(err)
	}
	log.hook = func([]byte) error { return &NothingError{errors.New("no quorum")} }
	if _, err := Commit(t.Context(), a.Store, Work, put{Key: "m"}); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	want := [][]byte{es[0].Entry, es[1].Entry}
	if !slices.EqualFunc(lead.entries, want, bytes.Equal) || !slices.EqualFunc(follow.entries, want, bytes.Equal) {
		t.Errorf("%d entries of the log, %d of the leader, %d of the follower", len(es), len(lead.entries),
			len(follow.entries))
	}
	a.stop()
	b.stop()
}

// A position and the head of an entry survive their encodings.
func TestPositionText(t *testing.T) {
	e := someEntry()
	h, err := ReadEntry(e.encode())
	if err != nil || h.Prev != e.prev || h.From.Seq() != 6 || h.To.Seq() != 7 || h.To.At() != 9 {
		t.Errorf("%+v, %v", h, err)
	}
	text, err := h.To.MarshalText()
	var back Position
	if err = errors.Join(err, back.UnmarshalText(text)); err != nil || back != h.To {
		t.Errorf("%s: %v", text, err)
	}
	if back.UnmarshalText(text[2:]) == nil || back.UnmarshalText([]byte("no")) == nil {
		t.Error("a text of another length is a position")
	}
}
