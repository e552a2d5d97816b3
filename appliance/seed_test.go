package appliance

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// seedFrom is what everything drawn in a test comes from: the environment's, or a new one. It is told at once, and again at the end of a
// test that failed, since a long one has said much in between.
func seedFrom(t testing.TB, name string) uint64 {
	t.Helper()
	seed := loadFromEnv(t, name)
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<63) // 0 is none
	}
	t.Logf("%s=%d", name, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with %s=%d go test -run '^%s$' ./appliance", name, seed, t.Name())
		}
	})
	return seed
}

// keeper is a test that keeps what is logged and what is to be done at its end.
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

// A seed is told at the start and after a failure, and is taken again.
func TestSeedIsToldAndTaken(t *testing.T) {
	const name = "RONBOX_TEST_SEED"
	first := &keeper{TB: t, failed: true}
	seed := seedFrom(first, name)
	first.end()
	assigned := fmt.Sprintf("%s=%d", name, seed)
	if seed == 0 || len(first.lines) != 2 || first.lines[0] != assigned || !strings.HasPrefix(first.lines[1], "again with "+assigned+" go test -run '^TestX$'") {
		t.Errorf("seed %d: %q", seed, first.lines)
	}
	t.Setenv(name, strconv.FormatUint(seed, 10))
	second := &keeper{TB: t}
	again := seedFrom(second, name)
	second.end()
	if again != seed || len(second.lines) != 1 {
		t.Errorf("seed %d, again %d: %q", seed, again, second.lines)
	}
}
