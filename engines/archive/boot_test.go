package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// onlyRaw returns the path of the only raw file of the current line.
func (n *node) onlyRaw() string {
	n.t.Helper()
	dir := n.arc.rawDir(n.arc.record.read().current().ID)
	names, err := sortedNames(dir)
	if err != nil || len(names) != 1 {
		n.t.Fatal(names, err)
	}
	return filepath.Join(dir, names[0])
}

// A raw file that a kill left behind its recorded object takes nothing after it along.
func TestPackedFileIsLeft(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	path := n.onlyRaw()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n.arc.rotated = time.Time{}
	if err := n.arc.pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.put("b", 1)
	line := n.arc.Status().Line
	n.stop()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	n.boot()
	if s := n.arc.Status(); s.Line != line {
		t.Errorf("%+v, and the line was %s", s, line)
	}
	n.pump()
	n.restores(0)
	n.stop()
}

// A target that has lost its mark gets no other one, also after the line that was sent has ended.
func TestNoSecondMark(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	n.put("b", 1)
	path := n.onlyRaw()
	n.stop()
	if err := errors.Join(os.Remove(path), os.RemoveAll(n.root()), os.Mkdir(n.root(), 0o700)); err != nil {
		t.Fatal(err)
	}
	n.boot() // the line has a gap
	n.put("c", 1)
	err := errors.Join(n.pumps(), n.pumps())
	_, mark := os.Stat(filepath.Join(n.root(), target.Mark))
	if !errors.Is(err, target.ErrChanged) || mark == nil || n.arc.Status().State != StateChanged {
		t.Errorf("%v, %v, %+v", err, mark, n.arc.Status())
	}
	n.stop()
}

// What a node has sent to a target is known from its local files, for those that would mark it.
func TestTargetIsUsed(t *testing.T) {
	n := made(t)
	n.pump()
	n.stop()
	dir, other := filepath.Join(n.dir, Folder), n.cfg
	other.Target = "file://" + t.TempDir()
	again := n.cfg
	again.Target += "/"
	if !n.cfg.Used(dir) || !again.Used(dir) || other.Used(dir) || n.cfg.Used(t.TempDir()) {
		t.Error(n.cfg.Used(dir), again.Used(dir), other.Used(dir))
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !other.Used(dir) {
		t.Error("a record that cannot be read counts as none")
	}
}

// A node with another key begins a line of its own: what two keys have signed cannot be restored.
func TestKeyIsReplaced(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	n.put("b", 1)
	line, last := n.arc.Status().Line, n.states[1]
	n.stop()
	if err := os.Remove(filepath.Join(n.dir, Folder, "archive.key")); err != nil {
		t.Fatal(err)
	}
	n.boot()
	n.put("c", 1)
	n.pump()
	n.put("d", 1)
	n.pump()
	if l := n.arc.record.read().current(); l.Reason != reasonSigner || n.arc.Status().State != StateOK {
		t.Errorf("%+v, %+v", l, n.arc.Status())
	}
	n.sound()
	o := n.options()
	out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, o)
	if err != nil || out.Manifest.StateHash.String() != n.states[4] {
		t.Errorf("%+v, %v", out, err)
	}
	o.Line = line
	out, err = n.history().Restore(t.Context(), t.TempDir(), history.Moment{Seq: 1}, o)
	if err != nil || out.Manifest.StateHash.String() != last {
		t.Errorf("of the line before: %+v, %v", out, err)
	}
	n.stop()
}

// An archive that could not start says so, and why.
func TestFailedStart(t *testing.T) {
	n := made(t)
	n.pump()
	n.stop()
	key := filepath.Join(n.dir, Folder, "archive.key")
	if err := os.WriteFile(key, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.arc.Bind(n.store); err == nil {
		t.Fatal("a short key was taken")
	}
	if s := n.arc.Status(); s.State != StateFailed || s.Advice == "" || !strings.Contains(s.LastError, key) {
		t.Errorf("%+v", s)
	}
}

// A snapshot that fails is not tried again at once, unless a base is asked for.
func TestFailedSnapshotWaits(t *testing.T) {
	n := made(t)
	fails := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return n.arc.takeBase(ctx)
	}
	first, second := fails(), fails()
	n.arc.asked.Store(true)
	third := fails()
	if first == nil || second != nil || third == nil || n.arc.asked.Load() {
		t.Errorf("%v, %v, %v", first, second, third)
	}
	if s := n.arc.Status(); s.LastError == "" {
		t.Errorf("%+v", s)
	}
	n.stop()
}

// A log object that was sent and not removed from the local disk is not sent again: credentials that
// may not read could not tell that it is there.
func TestSentObjectIsLeft(t *testing.T) {
	n := made(t)
	n.put("a", 1)
	n.pump()
	l := n.arc.record.read().current()
	n.stop()
	raw, err := os.ReadFile(filepath.Join(n.root(), l.NodeID, l.ID, "log", l.SentName))
	if err == nil {
		err = os.WriteFile(filepath.Join(n.arc.outDir(l.ID), l.SentName), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.boot()
	if f, some := n.arc.queue.first(); some {
		t.Errorf("%s is sent again", f.name)
	}
	if left, err := os.ReadDir(n.arc.outDir(l.ID)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	n.stop()
}
