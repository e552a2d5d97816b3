package clock

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// Tolerance is the offset above which the node reports its clock.
	Tolerance = 10 * time.Second

	sameLead    = time.Second         // a wall clock that stays ahead may drift by this much
	settleSure  = time.Minute         // replaces Config.Settle while the clock is synchronised
	slowUpTo    = time.Hour           // a wall clock further behind is not waited for
	offAtMost   = 90 * 24 * time.Hour // a node may have been off for this long
	recallFor   = time.Hour           // see Settled
	syncedEvery = time.Second         // interval of the question whether the clock is synchronised
	never       = time.Duration(-1)
)

// States of the wall clock against the reading.
const (
	OK     = "ok"
	Ahead  = "ahead"  // it is ahead of the reading and not believed yet
	Behind = "behind" // it is more than Tolerance behind the reading
)

// ErrForward is returned by Accept if the wall clock is not ahead of the reading.
var ErrForward = errors.New("the wall clock is not ahead of the node's clock")

// ErrBeforeBuild is returned by Accept if the wall clock is before the commit time of the binary.
var ErrBeforeBuild = errors.New("the wall clock is before the commit time of this binary")

// Config holds the limits within which a wall clock is believed.
type Config struct {
	Step   time.Duration // the wall clock may be this much ahead of the reading
	Settle time.Duration // a wall clock further ahead is believed after this time
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config { return Config{Step: 10 * time.Second, Settle: 10 * time.Minute} }

// Options are the sources of a Clock.
type Options struct {
	// Read returns the wall clock and the time on CLOCK_BOOTTIME since any fixed moment. It is
	// called under the lock of the Clock. nil: those of the machine.
	Read func() (wall time.Time, up time.Duration)
	// Ahead returns by how much others have found the wall clock to be ahead of the true time.
	// origin is what Origin returns now. It is called under the lock of the Clock. nil: nobody
	// looks at it.
	Ahead func(origin time.Time) time.Duration
	// Synchronised reports whether the kernel trusts its clock. nil: the kernel's answer.
	Synchronised func() bool
	Built        time.Time // commit time of the binary; zero: unknown
	Config       Config    // zero: the default
}

// Clock is the clock of a node. Its methods are safe for concurrent use and do not block.
type Clock struct {
	o Options

	mu      sync.Mutex // a leaf: held for one reading
	cfg     Config
	reading time.Time
	wall    time.Time     // when reading was made
	up      time.Duration // when reading was made
	lead    *lead         // a wall clock that is ahead and not believed yet
	state   string
	since   time.Time     // reading at which state began
	recall  time.Duration // up until which no key is forgotten
	steps   Steps
}

// lead is a wall clock that is ahead of the reading.
type lead struct {
	by     time.Duration // when it was first seen
	since  time.Duration // up
	synced time.Duration // up since which the kernel has trusted the clock, or never
	asked  time.Duration // up of the last question, or never
}

// Steps counts the steps of the wall clock.
type Steps struct {
	Forward  uint64 // believed or accepted
	Backward uint64 // it fell more than Tolerance behind the reading
}

// Status describes the clock at one moment.
type Status struct {
	Reading, Wall time.Time
	State         string
	Since         time.Time // reading at which State began
	Synchronised  bool
	SettlesAt     time.Time // reading at which the two agree; zero: they do, or it is unknown
	BeforeBuild   bool      // the wall clock is before the commit time of the binary
	Built         time.Time
	Steps         Steps
}

// Offset returns the wall clock minus the reading.
func (s *Status) Offset() time.Duration { return s.Wall.Sub(s.Reading) }

// New returns a clock whose reading is the wall clock, or the commit time of the binary if the wall
// clock is earlier. Begin makes it continue a file.
func New(o Options) *Clock {
	if o.Read == nil {
		o.Read = machine()
	}
	if o.Synchronised == nil {
		o.Synchronised = synchronised
	}
	if o.Config == (Config{}) {
		o.Config = DefaultConfig()
	}
	c := &Clock{o: o, cfg: o.Config, state: OK}
	c.wall, c.up = c.read()
	c.reading = c.wall
	if c.reading.Before(o.Built) {
		c.reading = o.Built
	}
	c.judge()
	c.since, c.recall = c.reading, c.up+recallFor
	return c
}

// Begin continues a file whose newest stamp is last, as rule 5 of the package says. A member of a
// cluster calls it again when it learns the clocks of the others and when it begins to lead.
func (c *Clock) Begin(last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.up = c.read()
	c.recall = c.up + recallFor
	ahead := c.wall.Sub(last)
	c.reading, c.lead = last, nil
	if ahead >= 0 && !c.beforeBuild() && (ahead < offAtMost || c.synchronised()) {
		c.reading = c.wall
	}
	c.judge()
	c.since = c.reading
}

// SetConfig changes the configuration.
func (c *Clock) SetConfig(cfg Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg = cfg
}

// Now returns the reading. It has no monotonic part.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steer()
	return c.reading
}

// Origin returns the wall clock of the machine minus the time on CLOCK_BOOTTIME: it changes only
// when that wall clock is set.
func (c *Clock) Origin() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, up := c.o.Read() //lockwait: a clock answers at once
	return wall.Round(0).Add(-up)
}

// Wall returns the wall clock, corrected by what others have found.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, _ := c.read()
	return wall
}

// Settled reports whether the last boot and the last step are more than an hour ago. Until then no
// idempotency key may be forgotten.
func (c *Clock) Settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steer()
	return c.up >= c.recall
}

// Status returns the state of the clock.
func (c *Clock) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steer()
	s := Status{
		Reading:      c.reading,
		Wall:         c.wall,
		State:        c.state,
		Since:        c.since,
		Synchronised: c.synchronised(),
		BeforeBuild:  c.beforeBuild(),
		Built:        c.o.Built,
		Steps:        c.steps,
	}
	late := c.reading.Sub(c.wall)
	switch {
	case c.lead != nil && !s.BeforeBuild:
		s.SettlesAt = c.reading.Add(c.lead.left(c.up, c.cfg.Settle))
	case c.state == Behind && late < slowUpTo:
		s.SettlesAt = c.reading.Add(late) // after twice that time, at half speed
	}
	return s
}

// Accept believes a wall clock that is ahead at once, and returns by how much the reading went
// ahead. It returns ErrForward or ErrBeforeBuild and changes nothing if it cannot.
func (c *Clock) Accept() (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steer()
	switch {
	case c.lead == nil:
		return 0, ErrForward
	case c.beforeBuild():
		return 0, fmt.Errorf("%w (%s)", ErrBeforeBuild, c.o.Built.UTC().Format(time.RFC3339))
	}
	by := c.wall.Sub(c.reading)
	c.step()
	c.judge()
	return by, nil
}

func (c *Clock) read() (wall time.Time, up time.Duration) {
	wall, up = c.o.Read() //lockwait: a clock answers at once
	if c.o.Ahead != nil {
		wall = wall.Add(-c.o.Ahead(wall.Round(0).Add(-up))) //lockwait: it is a number in memory
	}
	return wall.Round(0).UTC(), up
}

func (c *Clock) synchronised() bool {
	return c.o.Synchronised() //lockwait: the kernel answers at once
}

func (c *Clock) beforeBuild() bool { return c.wall.Before(c.o.Built) }

// steer advances the reading to now, and steps it if a wall clock that is ahead is believed.
func (c *Clock) steer() {
	wall, up := c.read()
	passed := max(0, up-c.up)
	next := c.reading.Add(passed)
	if late := next.Sub(wall); late > 0 && late < slowUpTo {
		next = c.reading.Add(passed / 2)
		if next.Before(wall) {
			next = wall
		}
	}
	c.reading, c.wall, c.up = next, wall, up
	c.judge()
	if c.lead != nil && !c.beforeBuild() && c.lead.left(c.up, c.cfg.Settle) <= 0 {
		c.step()
	}
}

// step believes the wall clock, which is ahead.
func (c *Clock) step() {
	c.reading = c.wall
	c.recall = c.up + recallFor
	c.steps.Forward++
	c.judge()
}

// judge compares the wall clock with the reading, which follows it if it is a little ahead.
func (c *Clock) judge() {
	ahead := c.wall.Sub(c.reading)
	if ahead > 0 && ahead <= c.cfg.Step && !c.beforeBuild() {
		c.reading, ahead = c.wall, 0
	}
	state := OK
	switch {
	case ahead > c.cfg.Step, ahead > Tolerance && c.beforeBuild():
		state = Ahead
	case ahead < -Tolerance:
		state = Behind
	}
	if state != Ahead {
		c.lead = nil
	} else if c.lead == nil || (ahead-c.lead.by).Abs() > sameLead {
		c.lead = &lead{by: ahead, since: c.up, synced: never, asked: never}
	}
	if c.lead != nil {
		c.lead.ask(c.up, c.synchronised)
	}
	if state != c.state {
		c.state, c.since = state, c.reading
		if state == Behind {
			c.steps.Backward++
		}
	}
}

// ask asks once a second whether the kernel trusts the clock.
func (l *lead) ask(up time.Duration, synchronised func() bool) {
	if l.asked != never && up-l.asked < syncedEvery {
		return
	}
	l.asked = up
	switch {
	case !synchronised():
		l.synced = never
	case l.synced == never:
		l.synced = up
	}
}

// left returns how long the wall clock must stay ahead until it is believed.
func (l *lead) left(up, settle time.Duration) time.Duration {
	left := settle - (up - l.since)
	if l.synced != never {
		left = min(left, settleSure-(up-l.synced))
	}
	return left
}
