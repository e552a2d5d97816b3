package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
)

// bulkPatience bounds how long the other lanes can delay a bulk command.
const bulkPatience = time.Second

// committer is the state of the committer task, the only writer.
type committer struct {
	s     *Store
	lanes [lanes]<-chan job // nil once closed and empty
	// entries to apply on a node that does not lead; nil on a node alone, and once closed and empty
	follows   <-chan *followed
	following *followed // being applied
	held      job       // a bulk command that was taken but is not in a group yet
	batch     []job
	bytes     int
	limit     int     // of bytes, for this group
	place     int     // 1 while a command that was taken is not in the group yet
	cfg       *Config // for this group
	group     group
	probe     <-chan time.Time
}

// runCommitter is the committer task. It returns nil once the lanes are closed and drained, and
// flow.ErrOver once the node was deposed. Any other return poisons the store or follows a poisoned
// store.
func (s *Store) runCommitter(ctx context.Context) error {
	if s.info.Load() == nil {
		return errors.New("store: committer started before Prepare")
	}
	s.running.Store(true)
	defer s.running.Store(false)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	//rawchan: it paces the probe of a slow store; no work waits for it
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	c := &committer{s: s, probe: tick.C}
	c.group.open(s)
	for l, q := range s.lanes {
		c.lanes[l] = q.C()
	}
	if s.replica.follows != nil {
		c.follows = s.replica.follows.C()
	}
	err := c.run(ctx)
	if c.held != nil {
		c.batch = append(c.batch, c.held)
	}
	s.rejectQueued(c.batch, "stopped")
	if c.following != nil { // a panic
		c.following.reply.Fail(s.stopped())
	}
	if errors.Is(err, errDeposed) {
		close(s.replica.deposed)
		return flow.ErrOver
	}
	return err
}

// run processes groups until the lanes are drained. A panic of the file, of an engine's hook or of
// the committer ends run like any other failure: every command is answered.
func (c *committer) run(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.group.failPanic(v)
		}
	}()
	for {
		more, err := c.gather(ctx)
		if err != nil || !more {
			return err
		}
		if err := c.answerFollows(); err != nil {
			return err
		}
		if err := c.group.run(ctx, c.batch); err != nil {
			return err
		}
	}
}

// gather waits for one command and adds the commands that are queued, without waiting for more. An
// empty batch is a probe of a slow store.
func (c *committer) gather(ctx context.Context) (more bool, err error) {
	clear(c.batch)
	c.batch, c.bytes, c.place, c.cfg = c.batch[:0], 0, 0, c.s.config()
	c.limit = c.s.groupBytes(c.cfg)
	if c.held != nil {
		c.fill(nil)
		return true, c.stopped(ctx)
	}
	var first job
	for first == nil {
		if c.drained() {
			return false, nil
		}
		var probe bool
		if first, probe, err = c.wait(ctx); err != nil || probe {
			return err == nil, err
		}
	}
	c.fill(first)
	return true, c.stopped(ctx)
}

// wait blocks for the first command of a group. It returns a nil job without probe or error if a
// lane was closed.
func (c *committer) wait(ctx context.Context) (j job, probe bool, err error) {
	var ok bool
	var lane Lane
	select {
	case j, ok = <-c.lanes[Control]:
		lane = Control
	case j, ok = <-c.lanes[Work]:
		lane = Work
	case j, ok = <-c.lanes[Bulk]:
		lane = Bulk
	case f, more := <-c.follows:
		if !more {
			c.follows = nil
			return nil, false, nil
		}
		return nil, false, c.follow(f)
	case <-c.probe:
		return nil, c.s.heart.slow.Load(), c.group.look()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	case <-c.s.failed:
		return nil, false, c.s.Err()
	}
	if !ok {
		c.lanes[lane] = nil
	}
	return j, false, nil
}

// stopped returns the reason to stop, or nil. It is checked after a select, which chooses at random
// among ready cases, so that no command is taken after a stop.
func (c *committer) stopped(ctx context.Context) error {
	if err := c.s.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (c *committer) drained() bool {
	return c.held == nil && c.lanes[Control] == nil && c.lanes[Work] == nil && c.lanes[Bulk] == nil &&
		c.follows == nil
}

// fill orders the group: control, work, then one bulk command, which goes first after bulkPatience.
func (c *committer) fill(first job) {
	if first != nil && first.header().lane == Bulk {
		c.held, first = first, nil
	}
	if c.held == nil {
		c.held = c.take(Bulk)
	}
	if first != nil {
		c.place = 1
	}
	if c.held != nil && !c.full() && c.s.mono()-c.held.header().queued > int64(bulkPatience) {
		c.addHeld()
	}
	for l := range Bulk {
		if first != nil && first.header().lane == l {
			c.place = 0
			c.add(first)
		}
		c.drain(l)
	}
	if c.held != nil && !c.full() {
		c.addHeld()
	}
}

func (c *committer) addHeld() {
	c.add(c.held)
	c.held = nil
}

func (c *committer) drain(l Lane) {
	for !c.full() {
		j := c.take(l)
		if j == nil {
			return
		}
		c.add(j)
	}
}

// take receives without waiting. It returns nil if the lane is empty.
func (c *committer) take(l Lane) job {
	select {
	case j, ok := <-c.lanes[l]:
		if !ok {
			c.lanes[l] = nil
			return nil
		}
		return j
	default:
		return nil
	}
}

func (c *committer) add(j job) {
	c.batch = append(c.batch, j)
	c.bytes += j.header().size
}

func (c *committer) full() bool {
	return len(c.batch)+c.place >= c.cfg.GroupMax || c.bytes >= c.limit
}

// rejectQueued fails the commands of a group that was not begun, closes the lanes and fails every
// command in them. It is called when the committer has stopped or never ran.
func (s *Store) rejectQueued(left []job, label string) {
	reason := s.stopped()
	for _, q := range s.lanes {
		left = append(left, q.Discard(label)...)
	}
	for _, j := range left {
		if j.claim() { // false if it was answered with its group
			j.fail(reason)
		}
	}
	if s.replica.follows != nil {
		for _, f := range s.replica.follows.Discard(label) {
			f.reply.Fail(reason)
		}
	}
}

// stopped returns the error for what the committer did not take before it ended.
func (s *Store) stopped() error {
	switch {
	case s.Err() != nil:
		return s.Err()
	case office(s.replica.office.Load()) == departed:
		return ErrNotLeader
	}
	return fmt.Errorf("store has stopped: %w", ErrClosed)
}

// Thresholds of a slow disk.
const (
	commitStuck = 2 * time.Second        // a single commit above this makes the store slow
	commitSlow  = time.Second            // so do streak commits in a row above this
	commitQuick = 750 * time.Millisecond // streak commits in a row below this end it; an SD card takes 600 ms
	streak      = 3
	// interval of the empty commits of a slow store, which measure its pace while writes are
	// refused
	probeEvery = time.Second
)

// ErrSlow is returned by Health when commits take too long; the node is then not ready for writes.
var ErrSlow = errors.New("store: commits are slow")

// heartbeat measures the pace of commits. Only the committer updates it; any goroutine may read it.
// Times are ns on one monotonic clock.
type heartbeat struct {
	began atomic.Int64 // start of the running commit; 0: none runs
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

// drop discards the measurement of a commit that was not made.
func (h *heartbeat) drop() { h.began.Store(0) }

func next(n int, more bool) int {
	if more {
		return n + 1
	}
	return 0
}

// cause returns ErrSlow if commits are slow, else nil.
func (h *heartbeat) cause(now int64) error {
	if began := h.began.Load(); began != 0 && time.Duration(now-began) > commitStuck {
		return fmt.Errorf("%w: one has been running for %s", ErrSlow, time.Duration(now-began).Round(time.Millisecond))
	}
	if h.slow.Load() {
		return ErrSlow
	}
	return nil
}

// Health returns nil if the store can write in time, else ErrPoisoned, ErrClosed, ErrSlow or
// ErrFull. A node that does not lead is healthy, too. Health reads no disk and does not block.
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

// CommitAge returns how long the current commit has been running, or 0 if none runs.
func (s *Store) CommitAge() time.Duration {
	began := s.heart.began.Load()
	if began == 0 {
		return 0
	}
	return max(time.Duration(s.mono()-began), 1)
}

// mono returns the time since the store was created, in ns.
func (s *Store) mono() int64 { return int64(time.Since(s.born)) }
