package clustertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
)

// binary is the program under test, built once.
var binary string

var (
	planFlag = flag.String("plan", "", "nemeses and their counts, as lead=200,all=50; each: every nemesis once")
	holdFlag = flag.Duration("hold", 0, "least time of load with each nemesis (default 6s)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	hosttest.InMemory()
	dir, err := os.MkdirTemp("", "rc")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "ronbox")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
