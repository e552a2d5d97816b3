package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"ronbox/appliance/clock"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster"
	nodeapi "ronbox/httpapi/wire/node"
)

// keyClock fails while the wall clock and the clock of the node differ.
const keyClock = "clock_ok"

// readClock replaces the clocks of the machine in a build for tests, see clockfile.go. It is nil in
// others.
var readClock func() (wall time.Time, up time.Duration)

// setClock gives the node its clocks.
func (n *Node) setClock(o Options) {
	from := o.clock
	if from.Read == nil {
		from.Read = readClock
	}
	from.Built, from.Config = n.build.Made, n.boot.Node.Clock()
	from.Ahead = n.ahead
	n.clock = clock.New(from)
	n.now, n.wall, n.machine = n.clock.Now, n.clock.Wall, time.Now
	if from.Read != nil {
		n.machine = func() time.Time {
			wall, _ := from.Read()
			return wall
		}
	}
	if o.reading != nil {
		n.now = func() time.Time {
			o.reading()
			return n.clock.Now()
		}
	}
}

// ahead returns by how much a wall clock with an origin is ahead of most clocks of the members of
// the cluster, or 0 if that is not known or not worth a correction.
func (n *Node) ahead(origin time.Time) time.Duration {
	most := n.median.Load()
	if most == nil {
		return 0
	}
	if ahead := origin.Sub(*most); ahead.Abs() > cluster.MostSkew {
		return ahead
	}
	return 0
}

// beginClock lets the clock go on from the newest stamp of the file. This life has stamped nothing
// yet.
func (n *Node) beginClock() { n.clock.Begin(time.Unix(0, n.store.Info().At)) }

// clockOK returns an error while the wall clock and the clock of the node differ by more than
// clock.Tolerance.
func (n *Node) clockOK() error {
	s := n.clock.Status()
	if s.Offset().Abs() <= clock.Tolerance {
		return nil
	}
	seen, _ := s.Explain()
	return errors.New(seen)
}

// describeClock registers the metrics of the clock.
func (n *Node) describeClock() {
	n.metrics.Gauge("clock_offset_seconds", ownService, func() float64 {
		s := n.clock.Status()
		return seconds(s.Offset())
	})
	n.clockStepped("forward", 0)
	n.clockStepped("backward", 0)
}

func (n *Node) clockStepped(direction string, times uint64) {
	n.metrics.Counter("clock_steps_total", ownService, "direction", direction)(int(times))
}

// watchClock counts steps of the wall clock, and logs each change of the state once.
func (n *Node) watchClock() {
	s, was := n.clock.Status(), n.clockSeen
	n.clockSeen = s
	n.clockStepped("forward", s.Steps.Forward-was.Steps.Forward)
	n.clockStepped("backward", s.Steps.Backward-was.Steps.Backward)
	if s.State == was.State || was.State == "" && s.State == clock.OK {
		return
	}
	seen, next := s.Explain()
	tell := n.log.Warn
	if s.State == clock.OK {
		tell = n.log.Info
	}
	tell("clock_changed", "state", s.State, "offset_s", seconds(s.Offset()), "reason", seen, "next", next,
		"steps_forward", s.Steps.Forward, "steps_backward", s.Steps.Backward)
}

// Clock returns the clock of the node beside the clock of its machine.
func (n *Node) Clock(ctx context.Context) nodeapi.Clock {
	s := n.clock.Status()
	out := nodeapi.Clock{
		Reading:      toMillis(s.Reading),
		Wall:         toMillis(s.Wall),
		OffsetS:      seconds(s.Offset()),
		State:        s.State,
		Synchronised: s.Synchronised,
		SettlesAt:    toMillis(s.SettlesAt),
		Since:        toMillis(s.Since),
		Expires:      n.expiring(ctx, &s),
	}
	out.Message, out.Next = s.Explain()
	return out
}

// expiring returns what expires if the wall clock of s is accepted, or nil if it cannot be or the
// ledger is not there.
func (n *Node) expiring(ctx context.Context, s *clock.Status) *nodeapi.ClockExpiry {
	if s.State != clock.Ahead || s.BeforeBuild {
		return nil
	}
	keys, holds, err := n.services.Ledger().Expiring(ctx, s.Wall)
	if err != nil {
		return nil
	}
	return &nodeapi.ClockExpiry{Keys: keys, Holds: holds}
}

// AcceptClock makes the clock of the node go ahead to the wall clock at once, and appends an audit
// row.
func (n *Node) AcceptClock(ctx context.Context, by engines.Actor, corrID string) (nodeapi.ClockAccepted, error) {
	s := n.clock.Status()
	out := nodeapi.ClockAccepted{Expires: n.expiring(ctx, &s)}
	went, err := n.clock.Accept()
	if err != nil {
		return nodeapi.ClockAccepted{}, err
	}
	out.Reading, out.ByS = toMillis(n.clock.Now()), seconds(went)
	detail := map[string]string{"from": s.Reading.Format(time.RFC3339Nano), "by": went.Round(time.Second).String()}
	if e := out.Expires; e != nil {
		detail["keys"], detail["holds"] = strconv.FormatInt(e.Keys, 10), strconv.FormatInt(e.Holds, 10)
	}
	n.note(context.WithoutCancel(ctx), tokens.AuditEvent("clock.accepted", by, corrID, detail))
	return out, nil
}

// toMillis returns t in UTC without the digits that nobody reads.
func toMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// seconds returns d to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
