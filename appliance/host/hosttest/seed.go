package hosttest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Number is the number that a variable of the environment holds, 0 when it is not set. Another text
// ends the test.
func Number(t testing.TB, name string) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Seed returns the seed of all random values in a test: the number in the environment, or a new
// one.
func Seed(t testing.TB, name string) uint64 {
	t.Helper()
	seed := Number(t, name)
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<63) // 0 means no seed
	}
	t.Logf("%s=%d", name, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with %s=%d go test -run '^%s$'", name, seed, t.Name())
		}
	})
	return seed
}
