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

// If the wall clock is more than ten seconds behind the ledger, writes are refused.
func TestClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.fund("alice", 10)
		time.Sleep(2 * time.Second)
		r.skew.Store(int64(-13 * time.Second))
		time.Sleep(tickEvery + watchEvery)
		synctest.Wait()
		var not *NotReadyError
		if _, err := r.post("k", transfer("alice", "bo", 1, 1)); !errors.As(err, &not) || not.Cause != CauseClock {
			t.Errorf("%v", err)
		}
		if keys := r.failing(); !slices.Equal(keys, []string{keyClock}) {
			t.Errorf("failing: %v", keys)
		}
		r.skew.Store(0)
		time.Sleep(tickEvery + watchEvery)
		synctest.Wait()
		r.must("k", transfer("alice", "bo", 1, 1))
		r.stop()
	})
}

// A wall clock exactly ten seconds behind the ledger is accepted. One more nanosecond is not.
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

// A node that starts with its clock behind logs this once, and logs once when the clock is right
// again.
func TestClockBehindFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(
			t,
			func(r *rig) { r.log, r.hasty = hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Info}), true },
		)
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

// speechless is a ledger on which Roots returns err while so is true; with a nil err it returns no
// batches.
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

// Until the time of the ledger can be read, the lag of the wall clock is unknown and writes are
// refused.
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
				synctest.Wait()
				var not *NotReadyError
				if _, err := r.post("k", transfer("alice", "bo", 1, 1)); !errors.As(err, &not) ||
					not.Cause != CauseClock {
					t.Errorf("speaks %t, %v: %v", speaks, c.err, err)
				}
				if keys := r.failing(); !slices.Equal(keys, []string{keyClock}) {
					t.Errorf("speaks %t, %v: failing: %v", speaks, c.err, keys)
				}
			}
			r.skew.Store(0)
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			r.must("k", transfer("alice", "bo", 1, 1))
			r.stop()
		})
	}
}
