package wallet_test

import (
	"sync/atomic"
	"time"

	"ronbox/appliance/clock"
)

// wall is the wall clock of a machine, which is the time of package time plus a skew, and the clock
// of the node on it.
type wall struct {
	*clock.Clock
	skew atomic.Int64 // ns
}

// simSettle is short, so that some of the turns of a simulation are believed.
const simSettle = 2 * time.Second

func newWall() *wall {
	w, began := &wall{}, time.Now()
	w.Clock = clock.New(clock.Options{
		Read: func() (time.Time, time.Duration) {
			now := time.Now()
			return now.Add(time.Duration(w.skew.Load())), now.Sub(began)
		},
		Synchronised: func() bool { return false },
		Config:       clock.Config{Step: clock.DefaultConfig().Step, Settle: simSettle},
	})
	return w
}

func (w *wall) turn(by time.Duration) { w.skew.Add(int64(by)) }

// turnClock turns the wall clock at random intervals, forward and back, by seconds, minutes or a
// day, until stop is closed.
func (s *sim) turnClock(stop <-chan struct{}) {
	d := s.dice("clock", 0)
	for {
		select {
		case <-stop:
			return
		case <-time.After(100*time.Millisecond + time.Duration(d.Int64N(int64(5*time.Second)))):
		}
		by := time.Duration(d.Int64N(int64(9 * time.Second)))
		switch d.IntN(6) {
		case 0:
			by = time.Duration(d.Int64N(int64(10 * time.Minute)))
		case 1:
			by = 25 * time.Hour
		}
		if d.IntN(2) == 0 {
			by = -by
		}
		s.wall.turn(by)
		s.turns++
	}
}
