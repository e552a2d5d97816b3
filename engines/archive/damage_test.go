package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// A change, a cut and a loss of any object is found, and named.
func TestDamageIsFound(t *testing.T) {
	n := made(t)
	n.pump()
	for i := range 3 {
		n.put("a", i)
		n.pump()
	}
	n.arc.asked.Store(true)
	n.pump()
	n.put("b", 1)
	n.pump()
	n.sound()
	last := uint64(4)
	for _, name := range n.objects() {
		path := filepath.Join(n.root(), name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for how, spoil := range map[string]func() error{
			"flipped": func() error {
				bad := append([]byte(nil), raw...)
				bad[len(bad)/2] ^= 1
				return os.WriteFile(path, bad, 0o600)
			},
			"header": func() error {
				bad := append([]byte(nil), raw...)
				bad[20] ^= 1
				return os.WriteFile(path, bad, 0o600)
			},
			"version": func() error {
				bad := append([]byte(nil), raw...)
				bad[7] ^= 1
				return os.WriteFile(path, bad, 0o600)
			},
			"cut":  func() error { return os.WriteFile(path, raw[:len(raw)-1], 0o600) },
			"gone": func() error { return os.Remove(path) },
		} {
			seq := strings.Split(name, "/")
			if how == "gone" && seq[2] == "base" {
				continue // of one part: what has no name left cannot be missed
			}
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			newest := how == "gone" && seq[2] == "log" && seq[3] == objectName(last-1)
			for what, o := range map[string]history.Options{"with": n.options(), "without": {}} {
				c, err := n.history().Verify(t.Context(), o)
				named := false
				for _, f := range c.Findings {
					named = named || f.Object == name
				}
				if err != nil || !named && !newest || newest != (len(c.Findings) == 0) {
					t.Errorf("%s %s, %s identity: %+v, %v", name, how, what, c, err)
				}
			}
			// the first group was before everything but the first base and the first log object
			if seq[2] == "log" && seq[3] != objectName(0) {
				out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Seq: 1}, n.options())
				if err != nil || out.Manifest.StateHash.String() != n.states[1] {
					t.Errorf("%s %s: a moment before it: %v", name, how, err)
				}
			}
			if seq[2] == "log" && !newest && seq[3] == objectName(last-1) {
				_, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
				if !errors.Is(err, object.ErrDamaged) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s %s: the latest moment: %v", name, how, err)
				}
			}
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.stop()
}

// A base without one of its parts does not count: the base before it is restored. Any part of a base
// that has another after it is named.
func TestBasePartMissing(t *testing.T) {
	n := made(t)
	n.pump()
	for i := range 12 {
		n.put(string(rune('a'+i)), 300_000)
	}
	n.arc.asked.Store(true)
	n.pump()
	n.put("b", 1)
	n.pump()
	n.sound()
	var parts []string
	for _, name := range n.objects() {
		if strings.Contains(name, "/base/"+objectName(12)+"/") {
			parts = append(parts, name)
		}
	}
	if len(parts) < 3 {
		t.Fatalf("%v", parts)
	}
	for i, name := range parts {
		path := filepath.Join(n.root(), name)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		c, err := n.history().Verify(t.Context(), history.Options{})
		if last := i == len(parts)-1; err != nil || len(c.Findings) == 0 && (!last || len(c.Notes) == 0) {
			t.Errorf("part %d: %+v, %v", i, c, err)
		}
		for _, f := range append(c.Findings, c.Notes...) {
			if f.Object != name {
				t.Errorf("part %d: %+v", i, f)
			}
		}
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		if err != nil || out.Manifest.StateHash.String() != n.hash() || out.Base != 0 {
			t.Errorf("part %d: restored %+v, %v", i, out, err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	n.stop()
}

// An object of another release ends a verification: it may be sound.
func TestVerifyOtherRelease(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	for _, name := range n.objects() {
		path := filepath.Join(n.root(), name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		later := bytes.Replace(raw, []byte("RBARCH01"), []byte("RBARCH02"), 1)
		end := len(later) - 96
		sum := b3.Sum(later[:end])
		copy(later[end:], sum[:])
		if err := os.WriteFile(path, later, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := n.history().Verify(t.Context(), n.options()); !errors.Is(err, object.ErrFormat) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.stop()
}

// The line in testdata was written by the first release with an archive. Every moment of it is
// restored for ever.
func TestLineOfFirstRelease(t *testing.T) {
	states := []string{
		1: "b3:96c119c076e46031e57ef43cfdd8770be0a046cc0d8f64f20b766edd97d3aa9e",
		2: "b3:d75372e91818506a1250b89ba645a9e3e62058fef766796fc4436145d4648225",
		3: "b3:122fbd4c518b5e1c275c1cf6df7b917a792419fd7c84686361f758606c76eb38",
		4: "b3:8db6c99e46891dfb1abacecbbcd5230b4ce3b8a1d4f28c4e1217e1cd82f38121",
		5: "b3:31d710b0135b2e5b6fb47f81dfd0336dd7d901c0155c4acad1a91513953be710",
	}
	text, err := os.ReadFile("testdata/line1.identity")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/line1")); err != nil {
		t.Fatal(err)
	}
	to, err := target.Parse("file://"+dir, DefaultConfig().Server())
	if err != nil {
		t.Fatal(err)
	}
	a, err := history.Open(t.Context(), to, "")
	if err != nil {
		t.Fatal(err)
	}
	o := history.Options{Identities: ids}
	if c, err := a.Verify(t.Context(), o); err != nil || len(c.Findings) > 0 || c.Entries != 5 || c.Bases != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	for seq := uint64(1); seq < 6; seq++ {
		out, err := a.Restore(t.Context(), t.TempDir(), history.Moment{Seq: seq}, o)
		if err != nil || out.Manifest.StateHash.String() != states[seq] {
			t.Errorf("command %d: %+v, %v", seq, out, err)
		}
	}
}

// A line that began while a group was being written, and has no later base yet, is restored to the base
// that it has. Verify says so, and after some days that it is wrong.
func TestOnlyAnEarlyBase(t *testing.T) {
	n := made(t)
	n.pump()
	begun := n.hash()
	capture := func(on bool) {
		n.arc.tap.mu.Lock()
		defer n.arc.tap.mu.Unlock()
		n.arc.tap.on = on
	}
	capture(false)
	n.put("a", 1)
	capture(true)
	n.arc.held = time.Now().Add(time.Hour) // there is no room for another base
	n.put("a", 2)
	n.pump()
	for _, late := range []bool{false, true} {
		if late {
			n.aged(4 * day)
		}
		c, err := n.history().Verify(t.Context(), n.options())
		if err != nil || len(c.Findings) == 0 == late || len(c.Notes) == 0 != late {
			t.Errorf("late %v: %+v, %v", late, c, err)
		}
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		if err != nil || out.Manifest.StateHash.String() != begun {
			t.Errorf("%+v, %v", out, err)
		}
	}
	n.stop()
}
