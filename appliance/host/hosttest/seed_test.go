package hosttest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keeper is a test that records log lines and cleanups.
type keeper struct {
	testing.TB
	lines  []string
	failed bool
	end    func()
}

func (t *keeper) Helper()          {}
func (t *keeper) Name() string     { return "TestX" }
func (t *keeper) Failed() bool     { return t.failed }
func (t *keeper) Cleanup(f func()) { t.end = f }
func (t *keeper) Logf(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// A seed is logged at the start and after a failure, and is taken again.
func TestSeedIsLoggedAndTaken(t *testing.T) {
	const name = "RONBOX_TEST_SEED"
	first := &keeper{TB: t, failed: true}
	seed := Seed(first, name)
	first.end()
	assigned := fmt.Sprintf("%s=%d", name, seed)
	if seed == 0 || len(first.lines) != 2 || first.lines[0] != assigned ||
		!strings.HasPrefix(first.lines[1], "again with "+assigned+" go test -run '^TestX$'") {
		t.Errorf("seed %d: %q", seed, first.lines)
	}
	t.Setenv(name, strconv.FormatUint(seed, 10))
	second := &keeper{TB: t}
	again := Seed(second, name)
	second.end()
	if again != seed || len(second.lines) != 1 {
		t.Errorf("seed %d, again %d: %q", seed, again, second.lines)
	}
}
