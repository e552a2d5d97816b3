package clock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// bench is a machine whose clocks a test sets.
type bench struct {
	wall   time.Time
	up     time.Duration
	synced bool
}

func newBench() *bench { return &bench{wall: noon} }

func (b *bench) options() Options {
	return Options{
		Read:         func() (time.Time, time.Duration) { return b.wall, b.up },
		Synchronised: func() bool { return b.synced },
	}
}

// pass lets both clocks run.
func (b *bench) pass(d time.Duration) {
	b.wall, b.up = b.wall.Add(d), b.up+d
}

// run is pass with readings of c in between, as the health gate makes them.
func (b *bench) run(c *Clock, d time.Duration) {
	const every = 250 * time.Millisecond
	for ; d > 0; d -= every {
		b.pass(min(d, every))
		c.Now()
	}
}

func (b *bench) check(t *testing.T, c *Clock, state string, offset time.Duration) {
	t.Helper()
	if s := c.Status(); s.State != state || s.Offset() != offset {
		t.Errorf("the clock is %s by %s, want %s by %s", s.State, s.Offset(), state, offset)
	}
}

func TestSmallStepsAreFollowed(t *testing.T) {
	b := newBench()
	c := New(b.options())
	for range 10 {
		b.pass(time.Second)
		b.wall = b.wall.Add(10 * time.Second)
		if got := c.Now(); !got.Equal(b.wall) {
			t.Errorf("reading %s, want %s", got, b.wall)
		}
	}
	if s := c.Status(); s.Steps != (Steps{}) {
		t.Errorf("steps: %+v", s.Steps)
	}
}

func TestAJumpThatComesBackChangesNothing(t *testing.T) {
	b := newBench()
	c := New(b.options())
	b.wall = b.wall.Add(26 * time.Hour)
	b.run(c, 4*time.Second)
	b.check(t, c, Ahead, 26*time.Hour)
	b.wall = b.wall.Add(-26 * time.Hour)
	b.run(c, time.Second)
	b.check(t, c, OK, 0)
	if want := noon.Add(5 * time.Second); !c.Now().Equal(want) {
		t.Errorf("reading %s, want %s", c.Now(), want)
	}
}

func TestAJumpIsBelievedOnceItHasSettled(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		synced bool
		after  time.Duration
	}{
		{"by its age", false, 10 * time.Minute},
		{"synchronised", true, time.Minute},
	} {
		b := newBench()
		b.synced = tt.synced
		c := New(b.options())
		b.wall = b.wall.Add(time.Hour)
		c.Now()
		if s := c.Status(); !s.SettlesAt.Equal(noon.Add(tt.after)) {
			t.Errorf("%s: settles at %s", tt.doc, s.SettlesAt)
		}
		b.run(c, tt.after-time.Second)
		b.check(t, c, Ahead, time.Hour)
		b.run(c, time.Second)
		b.check(t, c, OK, 0)
		if s := c.Status(); s.Steps.Forward != 1 {
			t.Errorf("%s: steps %+v", tt.doc, s.Steps)
		}
	}
}

// A wall clock that keeps changing, or a kernel that trusts it only now and then, starts anew.
func TestAnUnsteadyClockIsNotBelieved(t *testing.T) {
	b := newBench()
	c := New(b.options())
	b.wall = b.wall.Add(time.Hour)
	for range 5 {
		b.run(c, 9*time.Minute)
		b.wall = b.wall.Add(2 * time.Second)
		b.synced = true
		b.run(c, 30*time.Second)
		b.synced = false
		b.run(c, 2*time.Second)
	}
	if s := c.Status(); s.State != Ahead || s.Steps.Forward != 0 {
		t.Errorf("%s, steps %+v", s.State, s.Steps)
	}
}

func TestBehind(t *testing.T) {
	for _, tt := range []struct {
		doc         string
		back, after time.Duration
		left        time.Duration
	}{
		{"half speed below an hour", 30 * time.Minute, 20 * time.Minute, 20 * time.Minute},
		{"full speed above", 2 * time.Hour, 20 * time.Minute, 2 * time.Hour},
		{"then they agree", 30 * time.Minute, time.Hour, 0},
	} {
		b := newBench()
		c := New(b.options())
		b.wall = b.wall.Add(-tt.back)
		c.Now()
		if s := c.Status(); s.State != Behind || s.Steps.Backward != 1 {
			t.Errorf("%s: %s, steps %+v", tt.doc, s.State, s.Steps)
		}
		b.run(c, tt.after)
		if s := c.Status(); s.Offset() != -tt.left {
			t.Errorf("%s: behind by %s, want %s", tt.doc, -s.Offset(), tt.left)
		}
		if _, err := c.Accept(); !errors.Is(err, ErrForward) {
			t.Errorf("%s: accept: %v", tt.doc, err)
		}
	}
}

func TestBegin(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		doc    string
		off    time.Duration // the wall clock is ahead of the newest stamp
		synced bool
		built  time.Time
		state  string
		offset time.Duration
	}{
		{"the node was off", 30 * day, false, time.Time{}, OK, 0},
		{"for long, and the clock is synchronised", 400 * day, true, time.Time{}, OK, 0},
		{"for long", 400 * day, false, time.Time{}, Ahead, 400 * day},
		{"the clock was set back", -2 * day, true, time.Time{}, Behind, -2 * day},
		{"the clock is before the binary", 30 * day, true, noon.Add(day), Ahead, 30 * day},
	} {
		b := newBench()
		b.synced = tt.synced
		o := b.options()
		o.Built = tt.built
		c := New(o)
		c.Begin(noon.Add(-tt.off))
		t.Log(tt.doc)
		b.check(t, c, tt.state, tt.offset)
	}
}

// A node without a file begins at the commit time of its binary if the wall clock is earlier.
func TestBeforeTheBinary(t *testing.T) {
	b := newBench()
	b.synced = true
	o := b.options()
	o.Built = noon.Add(20 * 365 * 24 * time.Hour)
	c := New(o)
	if !c.Now().Equal(o.Built) {
		t.Errorf("reading %s", c.Now())
	}
	c.Begin(noon.Add(-time.Hour))
	b.run(c, 30*time.Minute)
	b.check(t, c, Ahead, time.Hour)
	if _, err := c.Accept(); !errors.Is(err, ErrBeforeBuild) {
		t.Errorf("accept: %v", err)
	}
}

func TestAccept(t *testing.T) {
	b := newBench()
	c := New(b.options())
	b.run(c, 2*time.Hour)
	if !c.Settled() {
		t.Error("not settled after two hours")
	}
	b.wall = b.wall.Add(time.Hour)
	c.Now()
	if by, err := c.Accept(); by != time.Hour || err != nil {
		t.Errorf("accept: %s, %v", by, err)
	}
	b.check(t, c, OK, 0)
	b.run(c, time.Hour-time.Second)
	if c.Settled() {
		t.Error("settled within an hour after a step")
	}
	b.run(c, time.Second)
	if !c.Settled() {
		t.Error("not settled an hour after a step")
	}
}

// A member that boots with a wrong clock believes it, until it learns what others say and begins
// again.
func TestBeginAgain(t *testing.T) {
	b := newBench()
	b.wall = b.wall.Add(30 * 24 * time.Hour)
	c := New(b.options())
	c.Begin(noon.Add(-time.Hour))
	b.check(t, c, OK, 0)
	c.o.Ahead = func(time.Time) time.Duration { return 30 * 24 * time.Hour }
	b.check(t, c, Behind, -30*24*time.Hour)
	c.Begin(noon.Add(-time.Minute))
	b.check(t, c, OK, 0)
	if got := c.Now(); !got.Equal(noon) {
		t.Errorf("reading %s, want %s", got, noon)
	}
	c.Begin(noon.Add(time.Minute)) // of a leader whose clock was ahead
	b.check(t, c, Behind, -time.Minute)
}

// The clocks of the machine agree with each other.
func TestMachine(t *testing.T) {
	c := New(Options{})
	last := c.Now()
	for range 1000 {
		now := c.Now()
		if now.Before(last) || time.Since(now).Abs() > time.Minute {
			t.Fatalf("%s after %s", now, last)
		}
		last = now
	}
	if s := c.Status(); s.State != OK {
		t.Errorf("%+v", s)
	}
}

// Whatever the wall clock does, the reading rises, at half speed at least, and goes ahead of
// CLOCK_BOOTTIME only by small steps of the wall clock and by steps that are counted.
func TestReadingLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench()
		c := New(b.options())
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			before, steps, up := c.Now(), c.Status().Steps.Forward, b.up
			b.synced = rapid.Bool().Draw(t, "synchronised")
			b.pass(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "passed")))
			if rapid.Bool().Draw(t, "jumps") {
				b.wall = b.wall.Add(time.Duration(rapid.Int64Range(int64(-30*time.Hour), int64(30*time.Hour)).Draw(t, "by")))
			}
			passed := b.up - up
			after := c.Now()
			moved, limit := after.Sub(before), passed+c.cfg.Step
			if moved < passed/2 {
				t.Fatalf("moved by %s in %s", moved, passed)
			}
			if c.Status().Steps.Forward == steps && moved > limit {
				t.Fatalf("moved by %s in %s without a step", moved, passed)
			}
		}
	})
}

// Explain names the clock that is probably wrong, by how much and since when, and says what will
// happen.
func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		by     time.Duration
		synced bool
		built  time.Time
		seen   []string
		next   []string
	}{
		{"ok", 3 * time.Second, false, time.Time{}, []string{"agree"}, []string{""}},
		{"ahead", 26 * time.Hour, false, time.Time{},
			[]string{"1d2h ahead", "since 2026-11-28T12:00:00Z (30s)", "the wall clock may be wrong"},
			[]string{"in 9m30s", "ronbox clock accept"}},
		{"ahead, synchronised", 26 * time.Hour, true, time.Time{},
			[]string{"1d2h ahead", "the node's clock is probably behind"}, []string{"in 30s"}},
		{"behind", -30 * time.Minute, false, time.Time{},
			[]string{"29m45s behind", "(15s)", "the wall clock is probably wrong"}, []string{"half speed", "in 59m30s"}},
		{"far behind", -72 * time.Hour, false, time.Time{},
			[]string{"3d behind", "the wall clock is probably wrong"}, []string{"full speed"}},
		{"far behind, synchronised", -50 * time.Hour, true, time.Time{},
			[]string{"2d2h behind", "the node's clock is probably ahead"}, []string{"full speed", "nothing is refused"}},
		{"before the binary", -time.Hour, true, noon,
			[]string{"1h behind", "the wall clock is wrong", "2026-11-28T12:00:00Z"}, []string{"set the clock"}},
	} {
		b := newBench()
		b.synced = tt.synced
		o := b.options()
		o.Built = tt.built
		c := New(o)
		b.wall = b.wall.Add(tt.by)
		c.Now()
		b.run(c, 30*time.Second)
		s := c.Status()
		seen, next := s.Explain()
		for _, want := range tt.seen {
			if !strings.Contains(seen, want) {
				t.Errorf("%s: %q lacks %q", tt.doc, seen, want)
			}
		}
		for _, want := range tt.next {
			if !strings.Contains(next, want) {
				t.Errorf("%s: %q lacks %q", tt.doc, next, want)
			}
		}
	}
}

// What others have found out about the wall clock is taken off it, as if it had been set right.
func TestAhead(t *testing.T) {
	b := newBench()
	o := b.options()
	c := New(o)
	right := c.Origin()
	c.o.Ahead = func(origin time.Time) time.Duration { return origin.Sub(right) }
	b.wall = b.wall.Add(30 * 24 * time.Hour)
	if got := c.Wall(); !got.Equal(noon) {
		t.Errorf("wall clock %s, want %s", got, noon)
	}
	b.run(c, 20*time.Minute) // in which a clock ahead would be believed
	if got, want := c.Now(), noon.Add(20*time.Minute); !got.Equal(want) {
		t.Errorf("reading %s, want %s", got, want)
	}
	b.check(t, c, OK, 0)
	b.wall = b.wall.Add(-60 * 24 * time.Hour)
	b.run(c, time.Minute)
	b.check(t, c, OK, 0)
}
