//go:build race

package hosttest

// UnderRace reports whether the race detector runs, which makes a test several times slower. Tests
// of one goroutine are skipped then: there is nothing that it could find.
func UnderRace() bool { return true }
