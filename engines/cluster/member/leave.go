package member

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"ronbox/engines/cluster/peer"
	"ronbox/store"
)

// begun is the content of the marks of leave and recover.
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
	if !d.has(leaveMark) {
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
	if err := d.do("log", func() error { return d.removeAll(raftDir) }); err != nil {
		return err
	}
	return d.do("identity", func() error { return d.dissolve(leaveMark) })
}

// Recover makes a stopped member, of a cluster that has lost its quorum for good, the only member
// of a new cluster with the data of its file and its log, which may lack the last writes of the old
// one. The file gets a new incarnation and the audit row by. Members of the old cluster are
// strangers to the new one; they rejoin with --wipe, a URL and a token. advertise may be "": the
// address stays. It returns ErrAlone and [store.ErrLocked] as LeaveLast does, and may be repeated
// until it has succeeded.
func (d *Dir) Recover(by store.Event, advertise string) (*peer.Identity, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	defer unlock()
	id, err := d.recover(by, advertise)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	return id, nil
}

func (d *Dir) recover(by store.Event, advertise string) (*peer.Identity, error) {
	but := []string{recoverMark}
	if has, err := d.hasFile(); has && err == nil {
		but = append(but, joinMark) // it has all that a member has
	}
	if err := errors.Join(d.idle(but...), d.unlocked()); err != nil {
		return nil, err
	}
	fresh, err := peer.Load(d.file(freshDir))
	if !d.has(recoverMark) || errors.Is(err, fs.ErrNotExist) {
		fresh, err = d.beginRecover(by, advertise)
	}
	if err != nil {
		return nil, err
	}
	return fresh, d.finishRecover()
}

// recoverBegun is the content of the mark of a recover.
type recoverBegun struct {
	By store.Event `json:"by"`
}

// beginRecover writes the mark and the new identity.
func (d *Dir) beginRecover(by store.Event, advertise string) (*peer.Identity, error) {
	if _, err := d.lastConfiguration(); err != nil { // of a log that cannot be read, too
		return nil, err
	}
	if advertise == "" {
		old, err := d.Identity()
		if err != nil {
			return nil, fmt.Errorf("%w; name the address of the peer port", err)
		}
		advertise = old.Advertise()
	}
	fresh, err := peer.Found(advertise, time.Now())
	if err != nil {
		return nil, err
	}
	if err := d.do("leftovers", func() error { return d.removeAll(freshDir) }); err != nil {
		return nil, err
	}
	if err := d.do("mark", func() error { return d.writeMark(recoverMark, recoverBegun{by}) }); err != nil {
		return nil, err
	}
	return fresh, d.do("identity", func() error { return fresh.Save(d.file(freshDir)) })
}

// finishRecover completes a recover that has its new identity. Without one nothing was changed, and
// the mark is removed.
func (d *Dir) finishRecover() error {
	fresh, err := peer.Load(d.file(freshDir))
	if errors.Is(err, fs.ErrNotExist) {
		return d.do("undo", func() error { return d.removeMark(recoverMark) })
	}
	mark, bad := readMark[recoverBegun](d, recoverMark)
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	if err := d.reincarnate(mark.By, fresh); err != nil {
		return err
	}
	if err := d.do("log", func() error { return d.removeAll(raftDir) }); err != nil {
		return err
	}
	if err := d.do("swap", func() error { return fresh.Save(d.file(clusterDir)) }); err != nil {
		return err
	}
	done := func() error {
		return errors.Join(d.removeMark(joinMark), d.removeMark(rejoinMark), d.removeMark(recoverMark))
	}
	if err := d.do("done", done); err != nil {
		return err
	}
	return d.do("leftovers", func() error { return d.removeAll(freshDir) })
}

// reincarnate makes fresh the only member of the file, with all that this node has on its disk.
func (d *Dir) reincarnate(by store.Event, fresh *peer.Identity) error {
	if err := d.install(); err != nil {
		return err
	}
	servers, _, err := d.fileConfiguration()
	if err != nil || isOnly(servers, fresh.ServerID()) {
		return err
	}
	if err := d.replay(); err != nil {
		return err
	}
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		return err
	}
	return d.do("file", func() error {
		only := &store.Membership{Index: m.Applied.Index, Raw: onlyMember(fresh)}
		_, err := store.Reincarnate(d.Database(), by, only)
		return err
	})
}
