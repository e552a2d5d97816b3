package clustertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
)

var (
	planFlag = flag.String("plan", "",
		"nemeses and their counts, as lead=200,all=50; each: every nemesis once; empty: none")
	holdFlag      = flag.Duration("hold", 6*time.Second, "least time of load with each nemesis")
	loadsFlag     = flag.String("loads", "versions,events,rewards", "loads besides transfers and names")
	heartbeatFlag = flag.Duration("heartbeat", 2*time.Second, "cluster.heartbeat of the nodes")
)

// scratch is the folder of the binary, removed at the end.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	hosttest.InMemory()
	var err error
	if scratch, err = os.MkdirTemp("", "rc"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// binary builds the program under test once and returns its path. RONBOX, if set, is used instead.
func binary(t testing.TB) string {
	t.Helper()
	hosttest.Sources(t, "../../../appliance", "../../../cmd", "../../../engines", "../../../httpapi", "../../../store")
	path, err := built()
	must(t, err)
	return path
}

var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("RONBOX"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(scratch, "ronbox")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "clockfile", "-ldflags", "-s -w", "-o", path, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})
