package wallet

import (
	"sync/atomic"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// wall is the wall clock that a node sees: package time's, and what it was turned by.
type wall struct {
	skew   atomic.Int64  // ns
	newest atomic.Uint64 // newest time of the ledger that was answered, Unix ns
	since  atomic.Int64  // when the clock was turned, or the ledger was seen to be far ahead of it; ns of package time
}

func (w *wall) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

func (w *wall) turn(by time.Duration) {
	w.skew.Add(int64(by))
	w.since.Store(time.Now().UnixNano())
}

// saw notes the time of what was done.
func (w *wall) saw(outs []ledger.Outcome) {
	for i := range outs {
		w.sawTime(outs[i].Receipt.At)
		w.saw(outs[i].Results)
	}
}

// sawTime notes a time of the ledger. It may be far ahead of what was seen before: what was refused has its time too, and shows it to nobody.
func (w *wall) sawTime(at int64) {
	far := w.lag() > maxClockLag
	raise(&w.newest, uint64(at))
	if !far && w.lag() > maxClockLag {
		w.since.Store(time.Now().UnixNano())
	}
}

// ledgerTime is the least that the next command's can be.
func (w *wall) ledgerTime() time.Time {
	now, newest := w.now(), time.Unix(0, int64(w.newest.Load()))
	if newest.After(now) {
		return newest
	}
	return now
}

// lag is how far it is behind the ledger.
func (w *wall) lag() time.Duration { return w.ledgerTime().Sub(w.now()) }

// mustShow says whether the wallet has had the time to see that it is too far behind: it looks every second.
func (w *wall) mustShow() bool {
	return w.lag() > maxClockLag+tickEvery && time.Now().UnixNano()-w.since.Load() > int64(tickEvery)
}

// look notes the time of the last batch, which nobody may have asked for: that of a hold's end.
func (s *sim) look() {
	l := s.alive("clock")
	head, err := l.has.Head(l.ctx)
	if err == nil {
		var last []record.Batch
		last, err = l.has.Roots(l.ctx, head.Batches-1, 1)
		for i := range last {
			s.wall.sawTime(last[i].At)
		}
	}
	if err != nil && l.ctx.Err() == nil {
		s.t.Error(err)
	}
}

// turnClock turns the wall clock now and then, forward and back, by seconds, minutes or a day, until stop is closed. One that is too far behind
// for writes is set right after a while.
func (s *sim) turnClock(stop <-chan struct{}) {
	d := s.dice("clock", 0)
	wait := func(least, most time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(least + time.Duration(d.Int64N(int64(most-least)))):
			return true
		}
	}
	for goesOn := true; goesOn && wait(100*time.Millisecond, 5*time.Second); {
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
		if s.look(); s.wall.lag() > maxClockLag {
			goesOn = wait(time.Second, 4*time.Second)
			s.wall.turn(s.wall.lag() - time.Duration(d.Int64N(int64(maxClockLag))))
		}
	}
}
