package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
	"ronbox/store"
)

// What a node has committed is in the target, and every command of it is restored.
func TestArchive(t *testing.T) {
	n := made(t)
	n.pump()
	for i := range 6 {
		n.put(string(rune('a'+i%3)), i)
		if i%2 == 1 {
			n.pump()
		}
	}
	s := n.arc.Status()
	if s.State != StateOK || s.SentSeq != 6 || s.Seq != 6 || s.Lag != 0 || s.Unsent != 0 || s.Local != 0 ||
		s.BaseSeq != 0 {
		t.Errorf("%+v", s)
	}
	n.restores(0)
	if c := n.sound(); c.Lines != 1 || c.Bases != 1 || c.Entries != 6 {
		t.Errorf("%+v", c)
	}
	n.stop()
	out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
	if err != nil || out.Manifest.StateHash.String() != n.states[6] || out.Later != 0 || out.Signer != s.Signer {
		t.Errorf("%+v, %v", out, err)
	}
	info, err := store.Restore(t.Context(), out.Manifest.Path, filepath.Join(t.TempDir(), "ronbox.db"),
		store.RestoreOptions{Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "allow"}}, nil)
	if err != nil || !info.Restored || info.Incarnation == out.Manifest.Incarnation {
		t.Errorf("%+v, %v", info, err)
	}
}

// A line goes on after a stop and after a kill, with what was not packed, sent or noted then.
func TestLineGoesOn(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.put("b", 1)
	n.arc.rotated = time.Time{}
	if err := n.arc.pack(t.Context()); err != nil { // and not sent
		t.Fatal(err)
	}
	n.put("a", 0)
	k := n.killed()
	// made, but the record does not have it: a kill before its write
	out := filepath.Join(k.arc.record.read().Lines[0].ID, "out", objectName(2))
	if err := os.WriteFile(filepath.Join(k.dir, Folder, out), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	line := n.arc.Status().Line
	n.stop()
	k.boot()
	k.put("c", 2)
	k.pump()
	if s := k.arc.Status(); s.Line != line || s.State != StateOK || s.SentSeq != 4 || s.Local != 0 {
		t.Errorf("%+v, and the line was %s", s, line)
	}
	k.stop()
	k.boot()
	k.put("d", 2)
	k.pump()
	k.restores(0)
	if c := k.sound(); c.Lines != 1 || c.Bases != 1 {
		t.Errorf("%+v", c)
	}
	k.stop()
}

// Whatever a node does between kills and stops, each command in the target is restored to the state
// that the node had, and the line goes on.
func TestEveryCommandIsRestored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := made(t)
		n.pump()
		for range rapid.IntRange(1, 12).Draw(rt, "turns") {
			switch rapid.IntRange(0, 5).Draw(rt, "turn") {
			case 0:
				n.pump()
			case 1:
				n.stop()
				n.boot()
			case 2:
				k := n.killed()
				n.stop()
				n = k.boot()
			case 3:
				n.arc.asked.Store(true)
				n.pump()
			default:
				n.put(rapid.StringMatching("[a-c]").Draw(rt, "key"), rapid.IntRange(0, 3).Draw(rt, "bytes"))
			}
		}
		n.pump()
		n.restores(0)
		if c := n.sound(); c.Lines != 1 {
			rt.Errorf("%d lines", c.Lines)
		}
		n.stop()
	})
}

// A line ends if the file is not the one that it has captured, and a new one begins with a base.
func TestLineEnds(t *testing.T) {
	for _, tt := range []struct {
		reason string
		change func(n *node)
		more   []*store.Bucket
	}{
		{reason: reasonGap, change: func(n *node) { // the end of a file was lost in a power cut
			l := n.arc.record.read().Lines[0]
			raws, err := sortedNames(n.arc.rawDir(l.ID))
			if err != nil || len(raws) != 1 {
				n.t.Fatal(raws, err)
			}
			path := filepath.Join(n.arc.rawDir(l.ID), raws[0])
			raw, err := os.ReadFile(path)
			if err == nil {
				err = os.Truncate(path, int64(len(raw)-3))
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}},
		{reason: reasonSchema, more: []*store.Bucket{{Name: "test/more"}}, change: func(*node) {}},
		{reason: reasonIncarnation, change: func(n *node) {
			m, err := n.history().Restore(n.t.Context(), n.t.TempDir(), history.Moment{Latest: true}, n.options())
			if err == nil {
				_, err = store.Restore(n.t.Context(), m.Manifest.Path, n.path(),
					store.RestoreOptions{Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "allow"}}, nil)
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}},
		{reason: reasonFirst, change: func(n *node) { n.cfg.Target = "file://" + n.t.TempDir() }},
	} {
		n := made(t)
		n.pump()
		n.put("a", 1)
		n.pump()
		n.put("b", 1)
		n.put("c", 1)
		was := n.arc.Status().Line
		n.stop()
		tt.change(n)
		n.boot(tt.more...)
		if tt.reason == reasonIncarnation {
			if err := n.store.AcceptRestore(t.Context(), store.Event{Event: "db.accept"}); err != nil {
				t.Fatal(err)
			}
		}
		if s := n.arc.Status(); s.Line == was || s.State != StateStarting {
			t.Errorf("%s: %+v", tt.reason, s)
		}
		n.pump()
		n.put("d", 1)
		n.pump()
		l := n.arc.record.read().current()
		if s := n.arc.Status(); s.State != StateOK || l.Reason != tt.reason || len(n.arc.record.read().Lines) != 1 {
			t.Errorf("%s: %+v, %+v", tt.reason, s, l)
		}
		n.sound()
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		if err != nil || out.Manifest.StateHash.String() != n.hash() {
			t.Errorf("%s: %+v, %v", tt.reason, out, err)
		}
		if tt.reason != reasonFirst {
			// the line before has what was captured; of a gap, what is known to have been committed
			o := n.options()
			o.Line = was
			m := history.Moment{Seq: 2}
			if tt.reason == reasonGap {
				m.Seq = 1
			}
			_, err := n.history().Restore(t.Context(), t.TempDir(), m, o)
			if err != nil {
				t.Errorf("%s: %v", tt.reason, err)
			}
		}
		n.stop()
	}
}

// While the target is away the node goes on, and what it has kept is sent afterwards.
func TestTargetAway(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	away := n.root() + ".away"
	if err := os.Rename(n.root(), away); err != nil {
		t.Fatal(err)
	}
	n.put("b", 1)
	if err := n.pumps(); !errors.Is(err, target.ErrUnreachable) {
		t.Error(err)
	}
	if s := n.arc.Status(); s.State != StateBehind || s.Lag == 0 || s.Unsent == 0 || s.LastError == "" {
		t.Errorf("%+v", s)
	}
	if err := os.Mkdir(n.root(), 0o700); err != nil { // the empty folder below a mount point
		t.Fatal(err)
	}
	n.put("c", 1)
	if err := n.pumps(); !errors.Is(err, target.ErrChanged) {
		t.Error(err)
	}
	if s := n.arc.Status(); s.State != StateChanged || s.Advice == "" {
		t.Errorf("%+v", s)
	}
	left, err := os.ReadDir(n.root())
	if err = errors.Join(err, os.Remove(n.root()), os.Rename(away, n.root())); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	n.pump()
	if s := n.arc.Status(); s.State != StateOK || s.Unsent != 0 {
		t.Errorf("%+v", s)
	}
	n.restores(0)
	n.sound()
	n.stop()
}

// At max_local capture stops and the node goes on. A new line begins when all is sent.
func TestFull(t *testing.T) {
	n := made(t)
	n.cfg.MaxLocal = 4 << 10
	n.arc.Reload(n.cfg)
	n.pump()
	first := n.arc.Status().Line
	var last uint64
	for i := 0; n.arc.Status().State == StateOK; i++ {
		last = n.put("a", 100)
	}
	n.put("b", 1)
	s := n.arc.Status()
	if s.State != StateFull || s.Local > 4<<10 || s.Seq != last-1 || s.Line != first {
		t.Errorf("%+v, %d commands", s, last)
	}
	n.pump()
	if s := n.arc.Status(); s.Line == first || s.State != StateOK || s.Local != 0 {
		t.Errorf("%+v", s)
	}
	later := n.put("c", 1)
	n.pump()
	delete(n.states, last)   // it was not captured
	delete(n.states, last+1) // nor this one, of which the base has the state
	n.restores(0)
	if n.states[later] == "" || n.sound().Lines != 2 {
		t.Error("there are not two lines")
	}
	n.stop()
}

// Of two nodes on copies of one disk the second begins a line of its own, and nothing is written
// over.
func TestForeign(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	k := n.killed()
	k.states = map[uint64]string{}
	n.put("b", 1)
	n.pump()
	k.boot()
	k.put("other", 1)
	k.pump()
	k.put("another", 1)
	k.pump()
	s := k.arc.Status()
	if s.State != StateForeign || s.Line == n.arc.Status().Line || s.SentSeq != 3 {
		t.Errorf("%+v", s)
	}
	n.put("c", 1)
	n.pump()
	if c := n.sound(); c.Lines != 2 {
		t.Errorf("%+v", c)
	}
	_, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Seq: 3}, n.options())
	if !errors.Is(err, history.ErrSeveral) {
		t.Error(err)
	}
	for _, of := range []*node{n, k} {
		o := of.options()
		o.Line = of.arc.Status().Line
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Seq: 3}, o)
		if err != nil || out.Manifest.StateHash.String() != of.states[3] {
			t.Errorf("%+v, %v", out, err)
		}
	}
	k.put("third", 1)
	done := make(chan error)
	go func() {
		_, err := k.arc.Base(t.Context(), nil)
		done <- err
	}()
	for waits := true; waits; {
		k.pump()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			waits = false
		default:
		}
	}
	if s := k.arc.Status(); s.State != StateOK {
		t.Errorf("%+v", s)
	}
	n.stop()
	k.stop()
}

// An object that was created by a call whose answer was lost counts as sent.
func TestAnswerLost(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.arc.rotated = time.Time{}
	if err := n.arc.pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := n.killed()
	n.pump()
	line := n.arc.Status().Line
	n.stop()
	k.boot()
	k.pump()
	if s := k.arc.Status(); s.State != StateOK || s.Line != line || s.SentSeq != 1 {
		t.Errorf("%+v", s)
	}
	k.stop()
}
