package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// When the disk counts as slow, and as well again.
const (
	commitStuck = 2 * time.Second        // one commit that lasts longer
	commitSlow  = time.Second            // streak commits in a row that last longer
	commitQuick = 250 * time.Millisecond // streak commits in a row that last less heal it
	streak      = 3
	probeEvery  = time.Second // a slow store commits its position this often, or nothing would heal it while writes are refused
)

// ErrSlow says that commits take too long: write-unready.
var ErrSlow = errors.New("store: commits are slow")

// heartbeat judges the pace of commits. The committer steps it, anyone reads it. Times are ns on one monotonic clock.
type heartbeat struct {
	began atomic.Int64 // of the commit that runs; 0: none
	slow  atomic.Bool
	late  int // owned by the committer
	quick int // owned by the committer
}

func (h *heartbeat) begin(now int64) { h.began.Store(max(now, 1)) }

func (h *heartbeat) end(now int64) {
	took := time.Duration(now - h.began.Swap(0))
	h.late, h.quick = next(h.late, took > commitSlow), next(h.quick, took < commitQuick)
	if h.late >= streak || took > commitStuck {
		h.slow.Store(true)
	}
	if h.quick >= streak {
		h.slow.Store(false)
	}
}

// drop forgets a commit that was not made: it says nothing about the disk's pace.
func (h *heartbeat) drop() { h.began.Store(0) }

func next(n int, more bool) int {
	if more {
		return n + 1
	}
	return 0
}

// cause is nil while the pace is sound.
func (h *heartbeat) cause(now int64) error {
	if began := h.began.Load(); began != 0 && time.Duration(now-began) > commitStuck {
		return fmt.Errorf("%w: one has been running for %s", ErrSlow, time.Duration(now-began).Round(time.Millisecond))
	}
	if h.slow.Load() {
		return ErrSlow
	}
	return nil
}

// Health is nil while the store takes writes in time; else ErrPoisoned, ErrClosed, ErrSlow or ErrFull. It reads no disk and never blocks.
func (s *Store) Health() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.info.Load() == nil || s.closed.Load() {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	if err := s.heart.cause(s.mono()); err != nil {
		return err
	}
	return s.room.cause()
}

// CommitAge is how long the commit that runs now has been running; 0: none runs.
func (s *Store) CommitAge() time.Duration {
	began := s.heart.began.Load()
	if began == 0 {
		return 0
	}
	return max(time.Duration(s.mono()-began), 1)
}

// mono is the time since the store was made, in ns.
func (s *Store) mono() int64 { return int64(time.Since(s.born)) }
