package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// bulkPatience is how long a bulk command may be held back by fuller lanes.
const bulkPatience = time.Second

// committer is the state of the one task that writes.
type committer struct {
	s     *Store
	lanes [lanes]<-chan job // nil once closed and empty
	held  job               // a bulk command taken, not yet in a group
	batch []job
	bytes int
	place int     // 1 while a command that was taken has yet to get into the group
	cfg   *Config // of this group
	group group
	probe <-chan time.Time
}

// runCommitter is the task. It returns nil once the lanes are closed and drained; any other return poisons the store or follows that.
func (s *Store) runCommitter(ctx context.Context) error {
	if s.info.Load() == nil {
		return errors.New("store: committer started before Prepare")
	}
	s.running.Store(true)
	defer s.running.Store(false)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	//rawchan: it paces the probe of a slow store, no work waits for it
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	c := &committer{s: s, probe: tick.C}
	c.group.open(s)
	for l, q := range s.lanes {
		c.lanes[l] = q.C()
	}
	err := c.run(ctx)
	if c.held != nil {
		c.batch = append(c.batch, c.held)
	}
	s.turnAway(c.batch, "stopped")
	return err
}

// run ends in a panic of the file, of an engine's hook or of the committer itself as in any other failure: everyone is answered.
func (c *committer) run(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.group.collapse(v)
		}
	}()
	for {
		more, err := c.gather(ctx)
		if err != nil || !more {
			return err
		}
		if err := c.group.run(ctx, c.batch); err != nil {
			return err
		}
	}
}

// gather waits for one command and takes, without waiting, what may go with it. An empty batch is a probe of a slow store.
func (c *committer) gather(ctx context.Context) (more bool, err error) {
	clear(c.batch)
	c.batch, c.bytes, c.place, c.cfg = c.batch[:0], 0, 0, c.s.config()
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

// wait blocks for the first command of a group. A nil job without probe or error is a lane that has closed.
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

// stopped is looked at after a select, which picks at random among ready cases: stop now takes no more commands.
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
	return c.held == nil && c.lanes[Control] == nil && c.lanes[Work] == nil && c.lanes[Bulk] == nil
}

// fill orders the group: control, work, then one bulk command, which goes first once it has waited too long.
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

// take receives without waiting; nil is nothing there.
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
	return len(c.batch)+c.place >= c.cfg.GroupMax || c.bytes >= int(c.cfg.GroupBytes)
}

// turnAway answers what is left of a group that was not begun, closes the lanes and answers every command in them: the committer has
// stopped, or never ran.
func (s *Store) turnAway(left []job, label string) {
	reason := fmt.Errorf("store has stopped: %w", ErrClosed)
	if err := s.Err(); err != nil {
		reason = err
	}
	for _, q := range s.lanes {
		left = append(left, q.Discard(label)...)
	}
	for _, j := range left {
		if j.claim() { // not so if it was answered with its group
			j.fail(reason)
		}
	}
}
