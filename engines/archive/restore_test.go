package archive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
)

// A restore that was killed leaves a file, which neither refuses the next one nor is removed by it.
func TestRestoreBesideALeftover(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	dir := t.TempDir()
	left := filepath.Join(dir, "archive-"+n.arc.Status().Line+".restoring")
	if err := os.WriteFile(left, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second one finds its snapshot there
		_, err := n.history().Restore(t.Context(), dir, history.Moment{Latest: true}, n.options())
		if (err == nil) != (i == 0) {
			t.Error(err)
		}
		if raw, err := os.ReadFile(left); err != nil || string(raw) != "half a file" {
			t.Errorf("the leftover: %q, %v", raw, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	n.stop()
}

// Two restores into one folder at once do not touch each other's files.
func TestRestoresAtOnce(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.put("a", 2)
	n.pump()
	dir := t.TempDir()
	beside := sync.OnceFunc(func() {
		if _, err := n.history().Restore(t.Context(), dir, history.Moment{Seq: 1}, n.options()); err != nil {
			t.Error(err)
		}
	})
	o := n.options()
	o.Progress = func(string, int64, int64) { beside() } // once the file of the first one is there
	out, err := n.history().Restore(t.Context(), dir, history.Moment{Seq: 2}, o)
	if err != nil || out.Manifest.StateHash.String() != n.states[2] {
		t.Errorf("%+v, %v", out, err)
	}
	n.stop()
}

// Two restores of periods into one folder at once write the same files.
func TestRestorePeriodsAtOnce(t *testing.T) {
	n := made(t)
	n.pump()
	p := n.closes(1, nil, object.PartSize+5)
	n.copied(p)
	dir := t.TempDir()
	beside := sync.OnceFunc(func() {
		if _, err := n.fetches(dir, b3.Digest{}); err != nil {
			t.Error(err)
		}
	})
	of := history.PeriodsOf{Name: func(n uint64) string { return fmt.Sprint(n) }, Options: n.options()}
	of.Progress = func(string, int64, int64) { beside() } // once the first part is written
	if _, err := n.history().RestorePeriods(t.Context(), dir, of); err != nil {
		t.Error(err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "1")); err != nil || !bytes.Equal(raw, p.raw) {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	n.stop()
}
