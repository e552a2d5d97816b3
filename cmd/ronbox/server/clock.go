package server

import (
	"fmt"
	"time"

	"ronbox/appliance/clock"
)

// keyClock fails while the wall clock and the clock of the node differ.
const keyClock = "clock_ok"

// setClock gives the node its clocks.
func (n *Node) setClock(o Options) {
	from := o.clock
	from.Built, from.Config = n.build.Made, n.boot.Node.Clock()
	n.clock = clock.New(from)
	n.now, n.wall = n.clock.Now, time.Now
	if from.Read != nil {
		n.wall = func() time.Time {
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

// clockOK returns an error while the wall clock and the clock of the node differ by more than
// clock.Tolerance.
func (n *Node) clockOK() error {
	s := n.clock.Status()
	switch offset := s.Offset(); {
	case offset.Abs() <= clock.Tolerance:
		return nil
	case offset > 0:
		return fmt.Errorf("the wall clock is %s ahead of the node's clock: see `ronbox clock status`",
			offset.Round(time.Second))
	default:
		return fmt.Errorf("the wall clock is %s behind the node's clock: see `ronbox clock status`",
			-offset.Round(time.Second))
	}
}
