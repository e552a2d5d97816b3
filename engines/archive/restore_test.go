package archive

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ronbox/engines/archive/history"
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
