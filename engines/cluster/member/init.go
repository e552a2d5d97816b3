package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// initBegun is the content of the mark of an init.
type initBegun struct {
	Advertise string `json:"advertise"`
}

// Init makes a stopped node the only member of a new cluster, and keeps its data. advertise is the
// address of its peer port for other nodes. Init may be repeated until it has succeeded: it returns
// the same ids. It returns ErrMember for a node of a cluster, [store.ErrLocked] for a running node,
// [store.ErrSchema] for a file of another schema, and [store.ErrRestored] for a restored file that
// was not accepted.
func (d *Dir) Init(advertise string) (*peer.Identity, error) {
	r, err := store.OpenReader(d.Database())
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	info := r.Info()
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	id, err := d.BeginInit(info, advertise)
	if err == nil {
		_, err = d.Finish()
	}
	if err != nil {
		return nil, err
	}
	return id, nil
}

// BeginInit does the part of Init that a running node can do: it writes the identity and the mark.
// The node then starts again, and Finish completes the init. info is that of the open file. It
// returns ErrEphemeral if the file is in memory only, and the other errors of Init.
func (d *Dir) BeginInit(info store.Info, advertise string) (*peer.Identity, error) {
	id, err := d.beginInit(info, advertise)
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	return id, nil
}

func (d *Dir) beginInit(info store.Info, advertise string) (*peer.Identity, error) {
	if err := mayInit(info); err != nil {
		return nil, err
	}
	if err := peer.CheckAddress(advertise); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(d.Database()); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrEphemeral
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := d.idle(initMark); err != nil {
		return nil, err
	}
	id, err := d.Identity()
	switch begun := d.has(initMark); {
	case err == nil && begun && id.Advertise() == advertise:
		return id, nil
	case err == nil && begun: // the file may name the first identity as its member already
		return nil, fmt.Errorf("%w: run `ronbox cluster init --advertise %s` again", ErrUnfinished, id.Advertise())
	case err == nil && !begun:
		return nil, fmt.Errorf("%w, %s", ErrMember, id.ClusterID())
	case err != nil && !begun && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := d.do("mark", func() error { return d.writeMark(initMark, initBegun{advertise}) }); err != nil {
		return nil, err
	}
	if id, err = peer.Found(advertise, store.Schema, time.Now()); err != nil {
		return nil, err
	}
	if err := d.do("identity", func() error { return id.Save(d.file(clusterDir)) }); err != nil {
		return nil, err
	}
	return id, nil
}

// mayInit returns an error if the file cannot become that of a cluster.
func mayInit(info store.Info) error {
	switch {
	case info.Schema != store.Schema:
		return fmt.Errorf("%w: the file has %d, the program %d; run `ronbox db migrate` first",
			store.ErrSchema, info.Schema, store.Schema)
	case info.Restored:
		return fmt.Errorf("%w: run `ronbox db accept-restore` first", store.ErrRestored)
	}
	return nil
}

// finishInit completes an init. If the init was killed before it had an identity, which no caller
// has seen, the node stays alone.
func (d *Dir) finishInit() error {
	id, err := d.Identity()
	if errors.Is(err, fs.ErrNotExist) {
		return d.do("undo", func() error { return d.dissolve(initMark) })
	}
	if err != nil {
		return err
	}
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		return err
	}
	if m == nil {
		if err := d.do("log", func() error { return removeAll(d.file(raftDir), d.InstallFile()) }); err != nil {
			return err
		}
		first := store.Place{Index: 1, Term: 1}
		err = d.do("members", func() error {
			return store.SetMembership(d.Database(), &store.Membership{
				Index: first.Index, Raw: onlyMember(id), Applied: store.Applied{Place: first, Origin: "init"},
			})
		})
	}
	if err != nil {
		return err
	}
	return d.do("done", func() error { return d.removeMark(initMark) })
}
