package member

import (
	"errors"
	"fmt"
	"time"

	"ronbox/store"
)

// begun is the content of the mark of leave.
type begun struct {
	At time.Time `json:"at"`
}

// LeaveLast makes the last member of a cluster, which is stopped, a node alone. The data stay; the
// log, the identity and the authority of the cluster are removed. It returns ErrNotLast if the node
// knows of another member, ErrAlone if it is not a member, and [store.ErrLocked] if it runs. It may
// be repeated until it has succeeded.
func (d *Dir) LeaveLast() error {
	unlock, err := d.lock()
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	if !d.Leaves() {
		err = d.mayLeave()
	}
	if err == nil {
		err = d.beginLeave()
	}
	unlock()
	if err == nil {
		_, err = d.Finish()
	}
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// Leaves reports whether a leave of the last member has begun and not ended. The identity may be
// gone.
func (d *Dir) Leaves() bool { return d.has(leaveMark) }

// mayLeave returns an error unless the node is the only member.
func (d *Dir) mayLeave() error {
	if err := errors.Join(d.idle(leaveMark), d.unlocked()); err != nil {
		return err
	}
	if err := d.install(); err != nil {
		return err
	}
	servers, err := d.lastConfiguration()
	if err != nil {
		return err
	}
	id, err := d.Identity()
	if err != nil {
		return err
	}
	if !isOnly(servers, id.ServerID()) {
		return fmt.Errorf("%w: the cluster has %d members; remove the others first, or use `recover`",
			ErrNotLast, len(servers))
	}
	return nil
}

// BeginLeave writes the mark of a leave of the last member, which leads and has checked that there
// is no other. The node then starts again, and Finish completes the leave.
func (d *Dir) BeginLeave() error {
	unlock, err := d.lock()
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	defer unlock()
	if err = d.idle(leaveMark); err == nil {
		err = d.beginLeave()
	}
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

func (d *Dir) beginLeave() error {
	return d.do("mark", func() error { return d.writeMark(leaveMark, begun{time.Now().UTC()}) })
}

// finishLeave completes a leave of the last member.
func (d *Dir) finishLeave() error {
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		return err
	}
	if m != nil {
		if err = d.replay(); err == nil {
			err = d.do("members", func() error { return store.SetMembership(d.Database(), nil) })
		}
	}
	if err != nil {
		return err
	}
	if err := d.do("log", func() error { return removeAll(d.file(raftDir)) }); err != nil {
		return err
	}
	return d.do("identity", func() error { return d.dissolve(leaveMark) })
}
