package server

import (
	"context"
	"strconv"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/clocks"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
)

// Clock returns the clock of the node beside the clock of its machine.
func (n *Node) Clock(ctx context.Context) nodeapi.Clock {
	s := n.clock.Status()
	out := nodeapi.Clock{
		Reading:      toMillis(s.Reading),
		Wall:         toMillis(s.Wall),
		OffsetS:      clocks.Seconds(s.Offset()),
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
	n.board.Set(ownService, keyClock, n.clock.Check())
	out.Reading, out.ByS = toMillis(n.clock.Now()), clocks.Seconds(went)
	detail := map[string]string{"from": s.Reading.Format(time.RFC3339Nano), "by": unit.Short(went)}
	if e := out.Expires; e != nil {
		detail["keys"], detail["holds"] = strconv.FormatInt(e.Keys, 10), strconv.FormatInt(e.Holds, 10)
	}
	n.note(context.WithoutCancel(ctx), tokens.AuditEvent("clock.accepted", by, corrID, detail))
	return out, nil
}

// toMillis returns t in UTC without the digits that nobody reads.
func toMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
