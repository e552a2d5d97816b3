package wallet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// A wall clock more than ten seconds behind the ledger's takes no writes.
func TestClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.fund("alice", 10)
		time.Sleep(2 * time.Second)
		r.skew.Store(int64(-13 * time.Second))
		time.Sleep(tickEvery + watchEvery)
		var not *NotReadyError
		if _, err := r.post("k", transfer("alice", "bo", 1, 1)); !errors.As(err, &not) || not.Cause != CauseClock {
			t.Errorf("%v", err)
		}
		if keys := r.failing(); !slices.Equal(keys, []string{keyClock}) {
			t.Errorf("failing: %v", keys)
		}
		r.skew.Store(0)
		time.Sleep(tickEvery + watchEvery)
		r.must("k", transfer("alice", "bo", 1, 1))
		r.stop()
	})
}

// Ten seconds behind are let pass, and not a nanosecond more.
func TestClockAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wall
		r := newRig(t, on(newOnModel(t, clock.now).model), by(clock.now)).start()
		for _, more := range []time.Duration{0, 1, 0} {
			clock.turn(r.e.clockBehind() - maxClockLag - more)
			r.e.sampleClock(nil)
			if err := r.e.WriteReady(); (err == nil) != (more == 0) {
				t.Errorf("%s behind: %v", maxClockLag+more, err)
			}
		}
		r.stop()
	})
}

// A node whose clock is behind when it starts says so in its log, once, and when that is over.
func TestClockBehindFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(t, func(r *rig) { r.log, r.hasty = hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Info}), true })
		r.fund("alice", 10)
		r.skew.Store(int64(-30 * time.Second))
		r.start()
		time.Sleep(5 * time.Second)
		r.skew.Store(0)
		time.Sleep(5 * time.Second)
		r.must("k", transfer("alice", "bo", 1, 1))
		r.stop()
		for _, line := range []string{`not ready: probe=clock_ok cause="the clock is 30s behind the ledger"`, "ready again: probe=clock_ok"} {
			if n := strings.Count(out.String(), line); n != 1 {
				t.Errorf("%d times %q in\n%s", n, line, out)
			}
		}
		if n := strings.Count(out.String(), "ready"); n != 2 {
			t.Errorf("of other keys:\n%s", out)
		}
	})
}

// speechless is a ledger that does not tell of its batches: it fails, or has none to show.
type speechless struct {
	ledger.Client
	so  atomic.Bool
	err error
}

func (c *speechless) Roots(ctx context.Context, since uint64, n int) ([]record.Batch, error) {
	if c.so.Load() {
		return nil, c.err
	}
	return c.Client.Roots(ctx, since, n)
}

// As long as the time of the ledger cannot be read, nobody knows whether the wall clock is behind it, and no write is taken.
func TestClockUnknown(t *testing.T) {
	for _, err := range []error{unavailable(false), nil} {
		synctest.Test(t, func(t *testing.T) {
			c := &speechless{err: err}
			r := newRig(t, over(func(inner ledger.Client) ledger.Client { c.Client = inner; return c }))
			r.fund("alice", 10)
			r.skew.Store(int64(-13 * time.Second))
			c.so.Store(true)
			r.hasty = true
			r.start()
			for _, speaks := range []bool{false, true} {
				c.so.Store(!speaks)
				time.Sleep(1500 * time.Millisecond)
				var not *NotReadyError
				if _, err := r.post("k", transfer("alice", "bo", 1, 1)); !errors.As(err, &not) || not.Cause != CauseClock {
					t.Errorf("speaks %t, %v: %v", speaks, c.err, err)
				}
				if keys := r.failing(); !slices.Equal(keys, []string{keyClock}) {
					t.Errorf("speaks %t, %v: failing: %v", speaks, c.err, keys)
				}
			}
			r.skew.Store(0)
			time.Sleep(1500 * time.Millisecond)
			r.must("k", transfer("alice", "bo", 1, 1))
			r.stop()
		})
	}
}
