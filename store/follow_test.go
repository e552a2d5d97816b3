package store

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

var errNoSpace = syscall.ENOSPC

// deed is one write of a drawn command.
type deed struct {
	what string
	key  string
	size int
}

// chaos is a command of drawn writes.
type chaos struct {
	deeds  []deed
	refuse bool
	panics bool
}

func (chaos) Kind() string { return "test.chaos/1" }

func (c chaos) Apply(_ Reader, at Stamp, w *Writes) (uint64, error) {
	for _, d := range c.deeds {
		value := []byte(strings.Repeat("v", d.size))
		switch d.what {
		case "put":
			rows.Put(w, d.key, value)
		case "append":
			logRows.Put(w, at.Seq, value)
		case "delete":
			rows.Delete(w, d.key)
		case "clear":
			w.Clear(testRows)
		case "sub put":
			w.Put(testSubs.Sub(d.key), []byte(d.key), value)
		case "sub delete":
			w.Delete(testSubs.Sub(d.key), []byte(d.key))
		case "sub drop":
			w.Drop(testSubs.Sub(d.key))
		case "audit":
			w.Audit(Event{Event: d.key, Decision: "allow"})
		}
	}
	if c.panics {
		panic("a bug")
	}
	if c.refuse {
		return 0, errRefused
	}
	return at.Seq, nil
}

func drawChaos(t *rapid.T) chaos {
	what := []string{"put", "append", "delete", "clear", "sub put", "sub delete", "sub drop", "audit"}
	deeds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
		return deed{
			what: rapid.SampledFrom(what).Draw(t, "what"),
			key:  rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "key"),
			size: rapid.SampledFrom([]int{0, 1, 100, 5000}).Draw(t, "size"),
		}
	}), 0, 6).Draw(t, "deeds")
	end := rapid.IntRange(0, 9).Draw(t, "end")
	return chaos{deeds: deeds, refuse: end == 0, panics: end == 1}
}

// runBatches applies the commands in the given grouping, without the lanes.
func runBatches(t *rapid.T, r *rig, batches [][]chaos) {
	var g group
	g.open(r.Store)
	for _, cmds := range batches {
		batch := make([]job, len(cmds))
		for i, c := range cmds {
			batch[i] = newRequest[uint64](context.Background(), 0, Work, c, nil)
		}
		if err := g.run(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
}

// parts splits s at drawn places.
func parts[T any](t *rapid.T, s []T, label string) [][]T {
	var out [][]T
	for len(s) > 0 {
		n := rapid.IntRange(1, len(s)).Draw(t, label)
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// Entries make another file equal to the leader's in every bucket but local, however the commands
// were grouped and the entries are batched. An entry that comes twice has no effect.
func TestCaptureLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := &fakeLog{}
		leader := member(t, clusterFile(t), log)
		if err := leader.Lead(); err != nil {
			rt.Fatal(err)
		}
		runBatches(rt, leader, parts(rt, rapid.SliceOfN(rapid.Custom(drawChaos), 1, 20).Draw(rt, "commands"), "group"))
		es := log.taken(t)

		var audited []AuditRow
		follower := member(t, clusterFile(t), &fakeLog{}, bomb{"begin"}, bomb{"aborted"}, bomb{"committed"})
		follower.opt.Audited = func(rows []AuditRow) { audited = append(audited, rows...) }
		var g group
		g.open(follower.Store)
		for _, batch := range parts(rt, es, "batch") {
			if rapid.Bool().Draw(rt, "no entry before") {
				batch = append([]Placed{{Place: Place{batch[0].Index - 1, 1}}}, batch...)
			}
			for range rapid.IntRange(1, 2).Draw(rt, "times") {
				if fatal, err := g.follow(&followed{entries: batch}); fatal != nil || err != nil {
					rt.Fatal(fatal, err)
				}
			}
		}
		if leader.dump() != follower.dump() {
			rt.Errorf("the leader has\n%s\nthe follower\n%s", leader.dump(), follower.dump())
		}
		if len(es) > 0 && leader.Applied() != follower.Applied() || *leader.Info() != *follower.Info() {
			rt.Errorf("leader %+v, %+v\nfollower %+v, %+v", leader.Applied(), leader.Info(), follower.Applied(),
				follower.Info())
		}
		if n := leader.Info().AuditSeq; uint64(len(audited)) != n ||
			n > 0 && audited[n-1].Hash != leader.Info().AuditHead {
			rt.Errorf("%d audit rows, want %d", len(audited), n)
		}
		path := clusterFile(t)
		for _, batch := range parts(rt, es, "offline batch") {
			if err := errors.Join(FollowOffline(path, batch), FollowOffline(path, batch)); err != nil {
				rt.Fatal(err)
			}
		}
		offline := member(t, path, &fakeLog{})
		if leader.dump() != offline.dump() || follower.Applied() != offline.Applied() {
			rt.Errorf("the leader has\n%s\nthe stopped follower\n%s", leader.dump(), offline.dump())
		}
		offline.stop()
		leader.stop()
		follower.stop()
		if rep, err := Verify(t.Context(), follower.Path(), nil, nil, nil); err != nil || !rep.OK {
			rt.Errorf("%+v, %v", rep, err)
		}
	})
}

// history returns the entries of some commands and the rows that they lead to.
func history(t *testing.T) (es []Placed, rows string) {
	t.Helper()
	log := &fakeLog{}
	leader := member(t, clusterFile(t), log).lead()
	for _, key := range []string{"a", "b", "c"} {
		mustCommit(leader, put{Key: key, Value: key})
	}
	rows = leader.dump()
	leader.stop()
	return log.taken(t), rows
}

// A store in standby takes no command and follows; one that leads takes no entry.
func TestStandby(t *testing.T) {
	es, rows := history(t)
	log := &fakeLog{last: 100}
	r := member(t, clusterFile(t), log).start()
	checkNotLeading(t, r)
	if err := r.Follow(t.Context(), es[:1]); err != nil {
		t.Fatal(err)
	}
	checkNotLeading(t, r)
	r.KeepMembers(4, []byte("more"))
	if err := r.Follow(t.Context(), append(slices.Clone(es), Placed{Place: Place{50, 2}})); err != nil {
		t.Fatal(err)
	}
	if r.dump() != rows || r.get("c") != "c" || r.Applied().Place != (Place{50, 2}) || r.Applied().Origin != "" {
		t.Errorf("%+v,\n%s", r.Applied(), r.dump())
	}
	if err := r.Lead(); err != nil {
		t.Fatal(err)
	}
	if err := r.Lead(); err == nil {
		t.Error("it was told twice")
	}
	foreign := Placed{Place{60, 3}, es[0].Entry}
	if err := r.Follow(t.Context(), []Placed{foreign}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("an entry while it leads: %v", err)
	}
	if err := r.Follow(t.Context(), append(slices.Clone(es), Placed{Place: Place{61, 3}})); err != nil {
		t.Errorf("known entries and a place while it leads: %v", err)
	}
	if mustCommit(r, put{Key: "d"}) != 4 || r.Err() != nil {
		t.Error(r.Err())
	}
	last := log.taken(t)
	r.stop()
	m, err := ReadMembership(r.Path())
	if err != nil || m.Index != 4 || m.Applied.Place != last[0].Place {
		t.Errorf("%+v, %v", m, err)
	}
	again := member(t, r.Path(), &fakeLog{})
	if again.Applied() != m.Applied {
		t.Errorf("%+v after a boot, want %+v", again.Applied(), m.Applied)
	}
	again.stop()
}

// An entry that does not follow the file poisons the store and changes nothing. One of another
// release is refused, and another program may apply it.
func TestEntriesThatDoNotFollow(t *testing.T) {
	es, _ := history(t)
	changed := func(fn func(e *entry)) Placed {
		e, err := parseEntry(es[0].Entry, MaxEntry)
		if err != nil {
			t.Fatal(err)
		}
		fn(&e)
		return Placed{es[0].Place, e.encode()}
	}
	for _, tt := range []struct {
		name string
		bad  []Placed
		want error
	}{
		{"a gap", es[1:], ErrDiverged},
		{"another order", []Placed{es[0], {es[1].Place, es[2].Entry}}, ErrDiverged},
		{"another history", []Placed{changed(func(e *entry) { e.prev[0]++ })}, ErrDiverged},
		{"another position", []Placed{changed(func(e *entry) { e.from.auditSeq++ })}, ErrDiverged},
		{"an entry that comes twice", []Placed{es[0], {es[1].Place, es[0].Entry}}, ErrDiverged},
		{"rows that lead elsewhere", []Placed{changed(func(e *entry) { e.to.seq++ })}, ErrDiverged},
		{"a damaged entry", []Placed{{es[0].Place, es[0].Entry[:entryLen+3]}}, ErrCorrupt},
		{"an empty entry", []Placed{{es[0].Place, []byte{}}}, ErrCorrupt},
		{"another format", []Placed{{es[0].Place, append([]byte{entryFormat + 1}, es[0].Entry[1:]...)}}, ErrFormat},
		{"an unknown bucket", []Placed{changed(func(e *entry) { e.ops[0].bucket = "newer/rows" })}, ErrFormat},
		{"a bucket of rows with sub-buckets", []Placed{changed(func(e *entry) { e.ops[0].sub = "s" })}, ErrFormat},
	} {
		r := member(t, clusterFile(t), &fakeLog{}).start()
		before := r.dump()
		err := r.Follow(t.Context(), tt.bad)
		poisoned := tt.want != ErrFormat
		if !errors.Is(err, tt.want) || errors.Is(err, ErrPoisoned) != poisoned || (r.Err() != nil) != poisoned {
			t.Errorf("%s: %v, store %v", tt.name, err, r.Err())
		}
		if r.dump() != before || r.Applied().Index != 1 {
			t.Errorf("%s: %+v", tt.name, r.Applied())
		}
		if r.Err() != nil {
			r.abandon()
			continue
		}
		if err := r.Follow(t.Context(), es); err != nil || r.get("c") != "c" {
			t.Errorf("%s: then %v", tt.name, err)
		}
		r.stop()
	}
}

// A follower without space says so, writes nothing, and follows once there is space.
func TestFollowerWithoutRoom(t *testing.T) {
	es, rows := history(t)
	r := member(t, clusterFile(t), &fakeLog{}).start()
	before := r.dump()
	file := fileOf(t, r.db)
	hookWrites(t, r.db, func([]byte, int64) (int, error) {
		return 0, &os.PathError{Op: "write", Path: r.Path(), Err: errNoSpace}
	})
	err := r.Follow(t.Context(), es)
	if !errors.Is(err, ErrFull) || r.Err() != nil || !errors.Is(r.room.cause(), ErrFull) {
		t.Errorf("%v, store %v, room %v", err, r.Err(), r.room.cause())
	}
	if r.dump() != before || r.Applied().Index != 1 {
		t.Errorf("%+v", r.Applied())
	}
	hookWrites(t, r.db, file.WriteAt)
	if err := r.Follow(t.Context(), es); err != nil || r.dump() != rows {
		t.Error(err)
	}
	r.stop()
}

// Whoever waits for Follow is answered when the committer ends.
func TestFollowIsAnswered(t *testing.T) {
	es, _ := history(t)
	r := member(t, clusterFile(t), &fakeLog{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Follow(t.Context(), es); !errors.Is(err, ErrClosed) {
			t.Errorf("it was queued: %v", err)
		}
	})
	for r.replica.follows.Len() < 1 {
		runtime.Gosched()
	}
	r.stop()
	wg.Wait()
	if err := r.Follow(t.Context(), es); err == nil {
		t.Error("a closed store follows")
	}

	r = member(t, clusterFile(t), &fakeLog{})
	r.opt.Audited = func([]AuditRow) { panic("a bug") }
	log := &fakeLog{}
	leader := member(t, clusterFile(t), log).lead()
	mustCommit(leader, do[int]{"test.audit/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		w.Audit(Event{Event: "e"})
		return 0, nil
	}})
	leader.stop()
	if err := r.start().Follow(t.Context(), log.taken(t)); !errors.Is(err, ErrDied) {
		t.Errorf("a panic: %v", err)
	}
	r.abandon()
}

// A node alone has nothing to follow.
func TestAlone(t *testing.T) {
	r := open(t, newFile(t))
	if err := r.Follow(t.Context(), nil); err == nil {
		t.Error("it follows")
	}
	if err := r.Lead(); err == nil {
		t.Error("it leads")
	}
	if r.Deposed() != nil || r.Applied() != (Applied{}) {
		t.Errorf("%+v", r.Applied())
	}
	r.stop()
}
