package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/store"
)

// ErrOthersRun is returned by Recover while other members answer.
var ErrOthersRun = errors.New("other members answer")

// RecoverOptions are the options of Recover.
type RecoverOptions struct {
	By        store.Event // the audit row
	Advertise string      // address of the peer port of this node; "": as before
	// OthersRun lets Recover go on while other members answer: they stay a cluster of their own.
	OthersRun bool
}

// Recover makes a stopped member, of a cluster that has lost its quorum for good, the only member
// of a new cluster with the data of its file and its log, which may lack the last writes of the old
// one. The file gets a new incarnation and an audit row. Members of the old cluster are strangers
// to the new one; they rejoin with --wipe, a URL and a token. It returns ErrOthersRun, with nothing
// changed, if another member answers within 3 s, and ErrAlone and [store.ErrLocked] as LeaveLast
// does. It may be repeated until it has succeeded.
func (d *Dir) Recover(ctx context.Context, o RecoverOptions) (*peer.Identity, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	defer unlock()
	id, err := d.recover(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	return id, nil
}

func (d *Dir) recover(ctx context.Context, o RecoverOptions) (*peer.Identity, error) {
	but := []string{recoverMark}
	if has, err := d.hasFile(); has && err == nil {
		but = append(but, joinMark) // it has all that a member has
	}
	if err := errors.Join(d.idle(but...), d.unlocked()); err != nil {
		return nil, err
	}
	fresh, err := peer.Load(d.file(freshDir), store.Schema)
	if !d.has(recoverMark) || errors.Is(err, fs.ErrNotExist) {
		fresh, err = d.beginRecover(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return fresh, d.finishRecover()
}

// othersWithin bounds the wait for the answers of other members.
const othersWithin = 3 * time.Second

// othersRun returns ErrOthersRun if the port of another one of servers answers: as a node of this
// cluster or, if it was recovered, of another one. Without an identity it cannot ask.
func (d *Dir) othersRun(ctx context.Context, servers []raft.Server) error {
	id, err := d.Identity()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, othersWithin)
	defer cancel()
	addrs := addresses(servers, id.ServerID())
	answers := make([]string, len(addrs))
	_ = flow.Fan(ctx, len(addrs), func(ctx context.Context, i int) error { // no leg fails
		c, err := id.Dial(ctx, addrs[i], peer.ProtoPeer)
		switch {
		case err == nil:
			answers[i] = addrs[i]
			_ = c.Close()
		case errors.Is(err, peer.ErrStranger):
			answers[i] = addrs[i] + " (as a node of another cluster)"
		}
		return nil
	})
	answers = slices.DeleteFunc(answers, func(a string) bool { return a == "" })
	if len(answers) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrOthersRun, strings.Join(answers, ", "))
}

// recoverBegun is the content of the mark of a recover.
type recoverBegun struct {
	By store.Event `json:"by"`
}

// beginRecover writes the mark and the new identity.
func (d *Dir) beginRecover(ctx context.Context, o RecoverOptions) (*peer.Identity, error) {
	servers, err := d.lastConfiguration()
	if err != nil { // of a log that cannot be read, too
		return nil, err
	}
	if !o.OthersRun {
		if err := d.othersRun(ctx, servers); err != nil {
			return nil, err
		}
	}
	advertise := o.Advertise
	if advertise == "" {
		old, err := d.Identity()
		if err != nil {
			return nil, fmt.Errorf("%w; name the address of the peer port", err)
		}
		advertise = old.Advertise()
	}
	fresh, err := peer.Found(advertise, store.Schema, time.Now())
	if err != nil {
		return nil, err
	}
	if err := d.do("leftovers", func() error { return removeAll(d.file(freshDir)) }); err != nil {
		return nil, err
	}
	if err := d.do("mark", func() error { return d.writeMark(recoverMark, recoverBegun{o.By}) }); err != nil {
		return nil, err
	}
	return fresh, d.do("identity", func() error { return fresh.Save(d.file(freshDir)) })
}

// finishRecover completes a recover that has its new identity. Without one nothing was changed, and
// the mark is removed.
func (d *Dir) finishRecover() error {
	fresh, err := peer.Load(d.file(freshDir), store.Schema)
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
	if err := d.do("log", func() error { return removeAll(d.file(raftDir)) }); err != nil {
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
	return d.do("leftovers", func() error { return removeAll(d.file(freshDir)) })
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
