package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// A moment is named by a time, a command, a stamp or as the latest.
func TestMoments(t *testing.T) {
	n := made(t)
	n.pump()
	var at []time.Time
	for i := range 4 {
		n.put("a", i)
		at = append(at, time.Unix(0, n.store.Info().At))
		if i == 1 {
			n.pump()
		}
	}
	n.pump()
	n.stop()
	out := t.TempDir()
	for _, tt := range []struct {
		name string
		m    history.Moment
		want uint64 // 0: there is none
	}{
		{"at a group", history.Moment{At: at[1]}, 2},
		{"before a group", history.Moment{At: at[2].Add(-1)}, 2},
		{"at the last one", history.Moment{At: at[3]}, 4},
		{"after the last one", history.Moment{At: at[3].Add(1)}, 0},
		{"before the first base", history.Moment{At: time.Unix(0, -1)}, 0},
		{"a command", history.Moment{Seq: 3}, 3},
		{"a command to come", history.Moment{Seq: 5}, 0},
		{"before a stamp", history.Moment{Stamp: at[2]}, 2},
		{"before a stamp to come", history.Moment{Stamp: at[3].Add(1)}, 0},
		{"the latest", history.Moment{Latest: true}, 4},
	} {
		got, err := n.history().Restore(t.Context(), t.TempDir(), tt.m, n.options())
		var none *history.MomentError
		switch {
		case tt.want == 0 && (!errors.As(err, &none) || none.Before == nil && none.After == nil):
			t.Errorf("%s: %v", tt.name, err)
		case tt.want > 0 && (err != nil || got.Reached.Seq != tt.want || got.Later != 4-tt.want ||
			got.Manifest.StateHash.String() != n.states[tt.want]):
			t.Errorf("%s: %+v, %v, want command %d", tt.name, got, err, tt.want)
		}
	}
	if _, err := n.history().Restore(t.Context(), out, history.Moment{Seq: 2}, n.options()); err != nil {
		t.Fatal(err)
	}
	_, err := n.history().Restore(t.Context(), out, history.Moment{Seq: 2}, n.options())
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("over a snapshot: %v", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// Restore refuses what the identity does not open, and what another key has signed.
func TestRestoreRefuses(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	n.stop()
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		o    history.Options
		want error
	}{
		"no identity":      {history.Options{}, object.ErrIdentity},
		"another identity": {history.Options{Identities: []age.Identity{other}}, object.ErrIdentity},
		"another signer":   {history.Options{Identities: []age.Identity{n.id}, Signer: "00"}, history.ErrSigner},
		"another line":     {history.Options{Identities: []age.Identity{n.id}, Line: "none"}, history.ErrNoMoment},
	} {
		dir := t.TempDir()
		_, err := n.history().Restore(t.Context(), dir, history.Moment{Latest: true}, tt.o)
		if left, bad := os.ReadDir(dir); !errors.Is(err, tt.want) || bad != nil || len(left) > 0 {
			t.Errorf("%s: %v, left %v", name, err, left)
		}
	}
	_, err = n.history().Verify(t.Context(), history.Options{Identities: []age.Identity{other}})
	if !errors.Is(err, object.ErrIdentity) {
		t.Error(err)
	}
}

// An archive without encryption is read without an identity.
func TestPlaintext(t *testing.T) {
	n := made(t)
	n.stop()
	n.cfg.Recipients, n.cfg.Plaintext = []string{}, true
	n.boot()
	n.pump()
	n.put("a", 1)
	n.pump()
	n.stop()
	out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, history.Options{})
	if err != nil || out.Manifest.StateHash.String() != n.states[1] {
		t.Errorf("%+v, %v", out, err)
	}
}

// A rehearsal proves the newest moment and every base by the one before it, and leaves nothing.
func TestRehearsal(t *testing.T) {
	n := made(t)
	n.pump()
	for i := range 3 {
		n.put("a", i)
		n.arc.asked.Store(true)
		n.pump()
	}
	dir := t.TempDir()
	now := time.Now().Add(time.Hour)
	d, err := n.history().Rehearse(t.Context(), dir, now, n.options())
	left, bad := os.ReadDir(dir)
	if err != nil || bad != nil || d.Bases != 3 || d.Took <= 0 || d.Behind < time.Hour || len(left) > 0 ||
		d.Restored.Manifest.StateHash.String() != n.states[3] {
		t.Errorf("%+v, %v, left %v", d, err, left)
	}
	n.stop()
}

// aged sets the time of all objects of a target back.
func (n *node) aged(by time.Duration) {
	n.t.Helper()
	n.dated("", func(at time.Time) time.Time { return at.Add(-by) })
}

// dated changes the times of the objects that have a text in their names.
func (n *node) dated(text string, to func(time.Time) time.Time) {
	n.t.Helper()
	for _, name := range n.objects() {
		if !strings.Contains(name, text) {
			continue
		}
		path := filepath.Join(n.root(), name)
		st, err := os.Stat(path)
		if err == nil {
			err = os.Chtimes(path, to(st.ModTime()), to(st.ModTime()))
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// Prune deletes what no moment of the time to keep needs, and keeps the two newest bases.
func TestPrune(t *testing.T) {
	n := made(t)
	for i := range 5 { // a base after each command, a day apart
		n.put("a", i)
		n.arc.asked.Store(true)
		n.pump()
		n.aged(day)
	}
	of := func(p history.Pruning) (names []string) {
		p.Now, p.DryRun = time.Now(), true
		p.Deleted = func(i target.Item) { names = append(names, i.Name[strings.Index(i.Name[27:], "/")+28:]) }
		if _, _, err := n.history().Prune(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return names
	}
	base := func(seq uint64) string { return "base/" + objectName(seq) + "/00000" }
	log := func(seq uint64) string { return "log/" + objectName(seq) }
	if got := of(history.Pruning{Keep: 100 * day}); got != nil {
		t.Errorf("of 100 days: %q", got)
	}
	// of a day and a half before the newest object: the base of 3 commands is older, and the log up to
	// it is not needed
	want := []string{base(1), base(2), log(0), log(1), log(2)}
	if got := of(history.Pruning{Keep: 3 * day / 2}); !slices.Equal(got, want) {
		t.Errorf("of 1.5 days: %q, want %q", got, want)
	}
	want = []string{base(1), base(2), base(3), log(0), log(1), log(2), log(3)}
	if got := of(history.Pruning{Keep: 0}); !slices.Equal(got, want) {
		t.Errorf("of 0 days: %q, want %q", got, want)
	}
	if _, _, err := n.history().Prune(t.Context(), history.Pruning{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	n.sound()
	n.restores(4)
	n.stop()
	n.cfg.Target += "/"
	if err := os.WriteFile(filepath.Join(n.dir, Folder, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.boot() // with a target of its own that has a line already
	if err := n.pumps(); err != nil {
		t.Fatal(err)
	}
	n.put("b", 1)
	n.arc.asked.Store(true)
	n.pump()
	n.aged(10 * day)
	if got := of(history.Pruning{Keep: day}); len(got) != 3 { // the whole old line, and nothing of the new one
		t.Errorf("the line before: %q", got)
	}
	n.stop()
}

// A moment between the end of the log and a later base is not known, and a rehearsal proves the
// bases that the log leads to.
func TestLogEndsBeforeBase(t *testing.T) {
	n := made(t)
	n.pump()
	var at []time.Time
	for i := range 3 {
		n.put("a", i)
		at = append(at, time.Unix(0, n.store.Info().At))
		n.pump()
	}
	n.arc.asked.Store(true)
	n.pump()
	n.stop()
	for _, name := range n.objects() { // of the log only the first command is there
		if strings.Contains(name, "/log/") && !strings.HasSuffix(name, objectName(0)) {
			if err := n.target().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range map[string]history.Moment{
		"a time": {At: at[1]}, "a command": {Seq: 2}, "a stamp": {Stamp: at[2]}, "at its end": {At: at[2].Add(-1)},
	} {
		_, err := n.history().Restore(t.Context(), t.TempDir(), m, n.options())
		var none *history.MomentError
		if !errors.As(err, &none) || none.Before.Seq != 1 || none.After.Seq != 3 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for seq, m := range map[uint64]history.Moment{1: {Seq: 1}, 3: {At: at[2]}} {
		out, err := n.history().Restore(t.Context(), t.TempDir(), m, n.options())
		if err != nil || out.Manifest.StateHash.String() != n.states[seq] {
			t.Errorf("command %d: %v", seq, err)
		}
	}
	if d, err := n.history().Rehearse(t.Context(), t.TempDir(), time.Now(), n.options()); err != nil || d.Bases != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A line that began while a group was being written has a first base from before its log. Nothing is
// missing between them, and later bases are proven.
func TestBaseBeforeTheLog(t *testing.T) {
	n := made(t)
	n.pump()
	capture := func(on bool) {
		n.arc.tap.mu.Lock()
		defer n.arc.tap.mu.Unlock()
		n.arc.tap.on = on
	}
	capture(false)
	n.put("a", 0)
	capture(true)
	for i := range 2 {
		n.put("a", i+1)
		n.pump()
		n.arc.asked.Store(true)
		n.pump()
	}
	n.stop()
	if c, err := n.history().Verify(t.Context(), n.options()); err != nil || len(c.Findings) > 0 || c.Bases != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if d, err := n.history().Rehearse(t.Context(), t.TempDir(), time.Now(), n.options()); err != nil || d.Bases != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
