package flow

import (
	"math"
	"math/rand/v2"
	"time"
)

// The restart rule: delays are drawn from 100 to 400 ms, doubled per recent restart, up to 5 s; a sixth restart within a minute escalates.
const (
	restartLo     = 100 * time.Millisecond
	restartHi     = 400 * time.Millisecond
	restartMost   = 5 * time.Second
	restartWindow = time.Minute
	restartLimit  = 5
)

// restartDelay draws the delay min(5 s, U[100, 400] ms × 2ⁿ) after n recent restarts.
func restartDelay(n int) time.Duration {
	base := restartLo + rand.N(restartHi-restartLo+1)
	return time.Duration(min(float64(restartMost), math.Ldexp(float64(base), n)))
}

// verdict is what becomes of an instance when a life of it ends.
type verdict int

const (
	finished  verdict = iota // done for good, as it should be
	cancelled                // stopped by its context
	died                     // may not be started again
	restarts
)

// judge decides the verdict: err is how the life ended, draining whether the service was told to drain, stopped whether the instance's
// context has ended.
func judge(r Restart, err error, draining, stopped bool) verdict {
	_, panicked := err.(*PanicError)
	switch {
	case r == Never && panicked:
		return died
	case err == nil && (r == OneShot || draining || stopped):
		return finished
	case stopped:
		return cancelled
	case r == Never:
		return died
	}
	return restarts
}

// restartLog holds the times of an instance's restarts within the last minute, oldest first.
type restartLog struct {
	times []time.Time
}

// recent drops what is older than a minute and returns how many restarts are left.
func (l *restartLog) recent(now time.Time) int {
	old := 0
	for old < len(l.times) && now.Sub(l.times[old]) >= restartWindow {
		old++
	}
	l.times = l.times[old:]
	return len(l.times)
}

// add records a restart and reports whether there are now too many.
func (l *restartLog) add(now time.Time) (escalate bool) {
	l.times = append(l.times, now)
	return l.recent(now) > restartLimit
}
