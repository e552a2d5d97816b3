package wallet

import (
	"sync/atomic"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// wall is the wall clock of a node: the time of package time plus a skew.
type wall struct {
	skew   atomic.Int64  // ns
	newest atomic.Uint64 // newest ledger time in an answer, Unix ns
	since  atomic.Int64  // when the clock was turned, or was first seen far behind the ledger; ns of package time
}

func (w *wall) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

func (w *wall) turn(by time.Duration) {
	w.skew.Add(int64(by))
	w.since.Store(time.Now().UnixNano())
}

// saw records the ledger times of outcomes.
func (w *wall) saw(outs []ledger.Outcome) {
	for i := range outs {
		w.sawTime(outs[i].Receipt.At)
		w.saw(outs[i].Results)
	}
}

// sawTime records a ledger time. It may be far ahead of the newest recorded time, because a refused
// op also advances the ledger time but returns no record.
func (w *wall) sawTime(at int64) {
	far := w.lag() > maxClockLag
	raise(&w.newest, uint64(at))
	if !far && w.lag() > maxClockLag {
		w.since.Store(time.Now().UnixNano())
	}
}

// ledgerTime returns the earliest possible ledger time of the next command.
func (w *wall) ledgerTime() time.Time {
	now, newest := w.now(), time.Unix(0, int64(w.newest.Load()))
	if newest.After(now) {
		return newest
	}
	return now
}

// lag returns how far the wall clock is behind the ledger.
func (w *wall) lag() time.Duration { return w.ledgerTime().Sub(w.now()) }

// mustShow reports whether the wallet has had enough time to detect that its clock is too far
// behind. It samples the clock every second.
func (w *wall) mustShow() bool {
	return w.lag() > maxClockLag+tickEvery && time.Now().UnixNano()-w.since.Load() > int64(tickEvery)
}

// look records the time of the last batch, which may belong to the expiry of a hold and not to a
// request.
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

// turnClock turns the wall clock at random intervals, forward and back, by seconds, minutes or a
// day, until stop is closed. A clock too far behind for writes is corrected after a while.
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

// raise sets v to n if v is less than n.
func raise(v *atomic.Uint64, n uint64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}
