package main

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "what the tests that kill draw from; KILL_SEED does the same, 0 draws a new one")

// killSeed returns the seed of all random draws of the kill tests. A run has one seed.
var killSeed = sync.OnceValues(func() (uint64, error) { return seedOf(*seedFlag, os.Getenv("KILL_SEED")) })

// seedOf returns the given seed, else the seed in env, else a new seed.
func seedOf(given uint64, env string) (uint64, error) {
	if given != 0 {
		return given, nil
	}
	if env != "" {
		n, err := strconv.ParseUint(env, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("KILL_SEED: %w", err)
		}
		given = n
	}
	if given == 0 {
		given = 1 + rand.Uint64N(1<<63)
	}
	return given, nil
}

// draws returns a random source for one goroutine of a test; the argument is the name of the
// goroutine. The same seed repeats the draws (when to kill, what to pay) but not the timing of the
// processes.
func draws(t testing.TB, who string) *rand.Rand {
	t.Helper()
	seed, err := killSeed()
	if err != nil {
		t.Fatal(err)
	}
	return drawsOf(t, who, seed)
}

func drawsOf(t testing.TB, who string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name() + "\n" + who))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// drawTime draws a duration from 0 to most.
func drawTime(d *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(most)))
}

// tellSeed logs the seed of a test, and logs it again at the end if the test failed.
func tellSeed(t testing.TB) {
	t.Helper()
	seed, err := killSeed()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("-seed %d", seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf(
				"draw the same again, though not at the same times: go test ./cmd/ronbox -run '^%s$' -v -args "+
					"-kills %d -seed %d",
				t.Name(),
				*kills,
				seed,
			)
		}
	})
}

// loggedTest is a test with a name that records its log lines.
type loggedTest struct {
	testing.TB
	lines []string
	ends  []func()
}

func (t *loggedTest) Helper() {}

func (t *loggedTest) Name() string { return "TestX" }

func (t *loggedTest) Failed() bool { return true }

func (t *loggedTest) Cleanup(f func()) { t.ends = append(t.ends, f) }

func (t *loggedTest) Logf(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// The seed on the command line takes precedence over the environment. The same seed repeats the
// draws of a goroutine, and goroutines with different names draw different values.
func TestSeedIsTaken(t *testing.T) {
	for _, tt := range []struct {
		given uint64
		env   string
		want  uint64
	}{{7, "9", 7}, {0, "9", 9}, {7, "", 7}} {
		if got, err := seedOf(tt.given, tt.env); err != nil || got != tt.want {
			t.Errorf("%d, %q: seed %d, %v", tt.given, tt.env, got, err)
		}
	}
	if _, err := seedOf(0, "x"); err == nil {
		t.Error("a seed that is none was taken")
	}
	a, errA := seedOf(0, "")
	b, errB := seedOf(0, "0")
	if a == b || a == 0 || errA != nil || errB != nil {
		t.Errorf("new seeds are %d and %d, %v, %v", a, b, errA, errB)
	}
	first := drawsOf(t, "x", 7).Uint64()
	if drawsOf(t, "x", 7).Uint64() != first || drawsOf(t, "y", 7).Uint64() == first ||
		drawsOf(t, "x", 8).Uint64() == first {
		t.Error("draws do not follow the seed and the name")
	}
	l := &loggedTest{TB: t}
	tellSeed(l)
	l.ends[0]()
	seed, err := killSeed()
	if want := fmt.Sprintf(
		"-seed %d",
		seed,
	); err != nil || len(l.lines) != 2 || l.lines[0] != want || !strings.Contains(l.lines[1], "'^TestX$'") ||
		!strings.HasSuffix(l.lines[1], want) {
		t.Errorf("%v, %q", err, l.lines)
	}
}
