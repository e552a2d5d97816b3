package target_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/archive/target"
)

// A name that is taken is durable before Create says so: the call that created it may have been killed
// before its sync, and the next one counts the object as sent.
func TestTakenNameIsSynced(t *testing.T) {
	const variable = "RONBOX_TEST_TAKEN"
	if dir := os.Getenv(variable); dir != "" {
		d, err := target.Parse("file://"+dir, target.Server{})
		if err == nil {
			err = d.Create(t.Context(), "a/b", filepath.Join(dir, target.Mark))
		}
		if !errors.Is(err, target.ErrExists) {
			t.Error(err)
		}
		return
	}
	strace := hosttest.Tool(t, "strace", "strace")
	d, dir := opened(t)
	create(t, d, "a/b")
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-y", "-xx", "-e", "trace=fsync", "-o", trace,
		os.Args[0], "-test.run=^TestTakenNameIsSynced$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	synced := false
	for c, err := range hosttest.Calls(f) {
		if err != nil {
			t.Fatal(err)
		}
		_, path := c.FD()
		synced = synced || path == filepath.Join(dir, "a") && !c.Failed()
	}
	if err := f.Close(); err != nil || !synced {
		t.Errorf("the directory of a name that is taken was not synced: %v", err)
	}
}
