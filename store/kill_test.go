package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

const killCycles = 8

// childCompact compacts the file again and again until it is killed.
func childCompact(path string) int {
	for {
		if _, err := Compact(context.Background(), path, func(int64, int64) { fmt.Println("at") }); err != nil {
			fmt.Println("x", err)
			return 1
		}
	}
}

// childSnapshot takes one snapshot after the other, plain and compacted, until it is killed.
func childSnapshot(path string) int {
	s := newStore(path, testConfig())
	if err := ready(context.Background(), s); err != nil {
		fmt.Println("x", err)
		return 1
	}
	for n := 0; ; n++ {
		o := SnapshotOptions{Compact: n%2 == 1}
		if _, err := s.Snapshot(context.Background(), filepath.Dir(path), o,
			func(int64, int64) { fmt.Println("at") }); err != nil {
			fmt.Println("x", err)
			return 1
		}
	}
}

// killAt kills a child after it has printed the given number of steps, plus a delay.
func killAt(t *testing.T, role, path string, steps int, more time.Duration) {
	t.Helper()
	cmd, said, in := childProcess(t, role, path)
	for range steps {
		if line, err := said.ReadString('\n'); err != nil || line != "at\n" {
			t.Fatalf("%s says %q, %v", role, line, err)
		}
	}
	<-time.After(more)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = said.WriteTo(io.Discard)
	_ = cmd.Wait()
	_ = in.Close()
}

// After a kill at any point of a compaction, the file is intact and has the same rows.
func TestKillCompaction(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	path, want := holed(t)
	for cycle := range killCycles {
		killAt(t, "compact", path, 1+3*cycle, time.Duration(cycle)*time.Millisecond)
		rep, err := Verify(t.Context(), path, nil, nil, nil)
		if err != nil || !rep.OK || rep.StateHash.String() != want {
			t.Fatalf("cycle %d: %+v, %v; want state %s", cycle, rep, err, want)
		}
	}
	if _, err := Compact(t.Context(), path, nil); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// After a kill at any point of a snapshot, every file with the name of a snapshot is complete, and
// the other files are swept.
func TestKillSnapshot(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	path, want := holed(t)
	dir := filepath.Dir(path)
	for cycle := range killCycles {
		killAt(t, "snapshot", path, 1+5*cycle, time.Duration(cycle)*time.Millisecond)
		r := open(t, path)
		if _, err := r.Sweep(dir); err != nil {
			t.Fatal(err)
		}
		r.stop()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".partial") {
				t.Errorf("cycle %d: %s was left", cycle, e.Name())
			}
			if e.Name() == filepath.Base(path) || !strings.HasSuffix(e.Name(), ".db") {
				continue
			}
			rep, err := Verify(t.Context(), filepath.Join(dir, e.Name()), nil, nil, nil)
			if err != nil || !rep.OK || !rep.Manifest || rep.StateHash.String() != want {
				t.Errorf("cycle %d: %+v, %v", cycle, rep, err)
			}
		}
	}
}
