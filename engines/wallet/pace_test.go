package wallet

import (
	"testing"
	"time"

	"ronbox/engines/ledger"
)

// On a slow disk, a call counts as stalled after four times the average duration, but never later
// than two seconds. A single slow call does not change the age.
func TestStallOnASlowDisk(t *testing.T) {
	var p progress
	least := ledger.DefaultConfig().StallAfter.D()
	take := func(n int, d time.Duration) time.Duration {
		for range n {
			p.note(d)
		}
		return p.pace(least)
	}
	take(1, time.Millisecond)
	if got := take(1, 900*time.Millisecond); got != least {
		t.Errorf("after one slow commit: %s", got)
	}
	if got := take(500, 300*time.Millisecond); got < 1190*time.Millisecond || got > 1210*time.Millisecond {
		t.Errorf("commits of 300 ms: %s", got)
	}
	if got := take(500, 900*time.Millisecond); got != slowest {
		t.Errorf("commits of 900 ms: %s", got)
	}
}
