package archive

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
)

var _ = flag.Int("cuts", 20, "cut the power of a node with an archive so many times, with -short a fifth")

// sector is the number of bytes that a disk writes atomically.
const sector = 512

// lastEntry returns the last entry of the local files of a node.
func (n *node) lastEntry() []byte {
	t := n.t
	t.Helper()
	dir := n.arc.rawDir(n.arc.record.read().current().ID)
	names, err := sortedNames(dir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, names[len(names)-1]))
	if err != nil {
		t.Fatal(err)
	}
	all, err := object.Entries(raw)
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	return all[len(all)-1]
}

// leadsOnlyTo checks that each command is restored to its state, or not at all, also of a line that
// has ended.
func (n *node) leadsOnlyTo(line string) {
	n.t.Helper()
	o := n.options()
	o.Line = line
	for m := range n.states {
		out, err := n.history().Restore(n.t.Context(), n.t.TempDir(), history.Moment{Seq: m}, o)
		if err != nil && !errors.Is(err, history.ErrNoMoment) {
			n.t.Error(err)
		}
		if err == nil && out.Manifest.StateHash.String() != n.states[m] {
			n.t.Errorf("command %d: another state", m)
		}
	}
}

// A write that was undone and is back after a power cut, in the place of the next one, is of no line.
func TestUndoneWriteComesBack(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	n.put("b", 1)
	twin := n.killed()
	twin.states = map[uint64]string{}
	twin.boot()
	twin.put("never", 5)
	undone := twin.lastEntry()
	twin.stop()

	n.arc.tap.Write(undone)
	if err := n.arc.tap.sync(); err != nil {
		t.Fatal(err)
	}
	durable, err := os.ReadFile(n.onlyRaw())
	if err != nil {
		t.Fatal(err)
	}
	n.arc.tap.Undo()
	n.put("c", 1)
	line := n.arc.Status().Line
	k := n.killed()
	path := k.dir + n.onlyRaw()[len(n.dir):]
	n.stop()
	if err := os.WriteFile(path, durable, 0o600); err != nil {
		t.Fatal(err)
	}
	k.boot()
	k.put("d", 1)
	k.pump()
	if l := k.arc.record.read().current(); l.ID == line || l.Reason != reasonGap {
		t.Errorf("%+v", l)
	}
	k.sound()
	k.leadsOnlyTo(line)
	k.leadsOnlyTo(k.arc.Status().Line)
	k.stop()
}

// loses cuts the power of a stopped node: of the raw file, the first bytes are on the disk, and any
// part of the sectors after them. It may have lost its name, if nothing of it was synced.
func loses(t *rapid.T, path string, synced int64) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if synced == 0 && rapid.Bool().Draw(t, "without a name") {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw = raw[:max(synced, int64(rapid.IntRange(0, len(raw)).Draw(t, "length")))]
	for at := synced; at < int64(len(raw)); at += sector - at%sector {
		if rapid.Bool().Draw(t, "kept") {
			continue
		}
		clear(raw[at:min(at+sector-at%sector, int64(len(raw)))])
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// After a power cut the line goes on or has ended with a gap, and leads to no other state. With a
// sync before each commit it goes on.
func TestPowerCuts(t *testing.T) {
	was := flag.Lookup("rapid.checks").Value.String()
	if err := flag.Set("rapid.checks", flag.Lookup("cuts").Value.String()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flag.Set("rapid.checks", was) }()
	times, gaps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		times++
		n := made(t)
		always := rapid.IntRange(0, 3).Draw(rt, "always") == 0
		if always {
			n.cfg.Fsync = syncAlways
			n.arc.Reload(n.cfg)
		}
		n.pump()
		synced := int64(0)
		for range rapid.IntRange(1, 8).Draw(rt, "turns") {
			switch rapid.IntRange(0, 5).Draw(rt, "turn") {
			case 0:
				n.pump()
				synced = 0
			case 1:
				if err := n.arc.tap.sync(); err != nil {
					rt.Fatal(err)
				}
				synced = n.arc.Status().Unsent
			default:
				n.put(rapid.StringMatching("[a-c]").Draw(rt, "key"), rapid.IntRange(0, 400).Draw(rt, "bytes"))
			}
		}
		line, unsent := n.arc.Status().Line, n.arc.Status().Unsent
		k := n.killed()
		if unsent > 0 {
			if always {
				synced = unsent
			}
			loses(rt, k.dir+n.onlyRaw()[len(n.dir):], synced)
		}
		n.stop()
		k.boot()
		k.put("after", 1)
		k.pump()
		s := k.arc.Status()
		l := k.arc.record.read().current()
		if s.State != StateOK || l.ID != line && (l.Reason != reasonGap || always) {
			rt.Errorf("%+v, %+v", s, l)
		}
		if l.ID != line {
			gaps++
		}
		k.sound()
		k.leadsOnlyTo(line)
		k.leadsOnlyTo(s.Line)
		k.stop()
	})
	t.Logf("%d cuts, %d gaps", times, gaps)
}
