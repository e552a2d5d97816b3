package clocks

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/clock"
	"ronbox/appliance/obs"
	"ronbox/engines/cluster"
)

// readClock replaces the clocks of the machine in a build for tests, see clockfile.go. It is nil in
// others.
var readClock func() (wall time.Time, up time.Duration)

// Clocks is the clock of a node, and what it compares it with.
type Clocks struct {
	*clock.Clock
	// Median is the origin of most clocks of the members of the cluster; nil: not known. The hello
	// task sets it.
	Median atomic.Pointer[time.Time]

	machine func() time.Time
	reading func()       // called before each Reading; may be nil
	seen    clock.Status // owned by the caller of Watch
}

// New returns the clocks of a machine, or those of o. reading is called before each Reading; it may
// be nil.
func New(o clock.Options, reading func()) *Clocks {
	c := &Clocks{machine: time.Now, reading: reading}
	if o.Read == nil {
		o.Read = readClock
	}
	if o.Read != nil {
		c.machine = func() time.Time {
			wall, _ := o.Read()
			return wall
		}
	}
	o.Ahead = c.ahead
	c.Clock = clock.New(o)
	return c
}

// Reading returns the time of the node: of everything that is stored.
func (c *Clocks) Reading() time.Time {
	if c.reading != nil {
		c.reading()
	}
	return c.Now()
}

// Machine returns the wall clock as the machine has it. Only the members of a cluster compare it.
func (c *Clocks) Machine() time.Time { return c.machine() }

// ahead returns by how much a wall clock with an origin is ahead of most clocks of the members of
// the cluster, or 0 if that is not known or not worth a correction.
func (c *Clocks) ahead(origin time.Time) time.Duration {
	most := c.Median.Load()
	if most == nil {
		return 0
	}
	if ahead := origin.Sub(*most); ahead.Abs() > cluster.MostSkew {
		return ahead
	}
	return 0
}

// Check returns an error while the wall clock and the clock of the node differ by more than
// clock.Tolerance.
func (c *Clocks) Check() error {
	s := c.Status()
	if s.Offset().Abs() <= clock.Tolerance {
		return nil
	}
	seen, _ := s.Explain()
	return errors.New(seen)
}

// Describe registers the metrics of the clock.
func (c *Clocks) Describe(m *obs.Metrics, service string) {
	m.Gauge("clock_offset_seconds", service, func() float64 {
		s := c.Status()
		return Seconds(s.Offset())
	})
	stepped(m, service, "forward", 0)
	stepped(m, service, "backward", 0)
}

func stepped(m *obs.Metrics, service, direction string, times uint64) {
	m.Counter("clock_steps_total", service, "direction", direction)(int(times))
}

// Watch counts steps of the wall clock, and logs each change of the state once. One task calls it.
func (c *Clocks) Watch(m *obs.Metrics, service string, log hclog.Logger) {
	s, was := c.Status(), c.seen
	c.seen = s
	stepped(m, service, "forward", s.Steps.Forward-was.Steps.Forward)
	stepped(m, service, "backward", s.Steps.Backward-was.Steps.Backward)
	if s.State == was.State || was.State == "" && s.State == clock.OK {
		return
	}
	seen, next := s.Explain()
	tell := log.Warn
	if s.State == clock.OK {
		tell = log.Info
	}
	tell("clock_changed", "state", s.State, "offset_s", Seconds(s.Offset()), "reason", seen, "next", next,
		"steps_forward", s.Steps.Forward, "steps_backward", s.Steps.Backward)
}

// Seconds returns d to the millisecond.
func Seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
