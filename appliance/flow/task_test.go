package flow

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every ending of a life, in full.
func TestJudge(t *testing.T) {
	fail, panicked := errors.New("fail"), &PanicError{}
	type when struct{ draining, stopped bool }
	running, draining, stopped, both := when{}, when{draining: true}, when{stopped: true}, when{true, true}
	for _, tt := range []struct {
		rule Restart
		err  error
		want map[when]verdict
	}{
		{Always, nil, map[when]verdict{running: restarts, draining: finished, stopped: finished, both: finished}},
		{Always, fail, map[when]verdict{running: restarts, draining: restarts, stopped: cancelled, both: cancelled}},
		{Always, panicked, map[when]verdict{running: restarts, draining: restarts, stopped: cancelled, both: cancelled}},
		{OneShot, nil, map[when]verdict{running: finished, draining: finished, stopped: finished, both: finished}},
		{OneShot, fail, map[when]verdict{running: restarts, draining: restarts, stopped: cancelled, both: cancelled}},
		{OneShot, panicked, map[when]verdict{running: restarts, draining: restarts, stopped: cancelled, both: cancelled}},
		{Never, nil, map[when]verdict{running: died, draining: finished, stopped: finished, both: finished}},
		{Never, fail, map[when]verdict{running: died, draining: died, stopped: cancelled, both: cancelled}},
		{Never, ErrOver, map[when]verdict{running: finished, draining: finished, stopped: finished, both: finished}},
		{Never, panicked, map[when]verdict{running: died, draining: died, stopped: died, both: died}},
	} {
		for w, want := range tt.want {
			if got := judge(tt.rule, tt.err, w.draining, w.stopped); got != want {
				t.Errorf("%v, %v, %+v: verdict %d, want %d", tt.rule, tt.err, w, got, want)
			}
		}
	}
}

// The count is that of the restarts within the last minute, and the sixth of them escalates.
func TestRestartLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l restartLog
		var all []time.Time
		now := time.Unix(0, 0)
		for _, gap := range rapid.SliceOf(rapid.IntRange(0, 30)).Draw(t, "seconds between") {
			now = now.Add(time.Duration(gap) * time.Second)
			escalate, want := l.add(now), 0
			for all = append(all, now); want < len(all) && now.Sub(all[len(all)-1-want]) < time.Minute; want++ {
			}
			if got := l.recent(now); got != want || escalate != (want > 5) {
				t.Fatalf("recent = %d, escalate %v, want %d", got, escalate, want)
			}
		}
	})
}

// A drawn delay lies between the doubled bounds and never above the cap, however large n is.
func TestRestartDelayBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "n")
		d := restartDelay(n)
		lo, hi := restartMost, restartMost
		if n < 6 {
			lo, hi = min(lo, restartLo<<n), min(hi, restartHi<<n)
		}
		if d < lo || d > hi {
			t.Fatalf("n %d: %v is not in [%v, %v]", n, d, lo, hi)
		}
	})
}
