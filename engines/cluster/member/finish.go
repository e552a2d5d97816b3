package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ronbox/appliance/host"
	"ronbox/store"
)

// State is the result of Finish: the state of a data directory.
type State struct {
	Clustered bool     // the node is a member, or joins
	Joining   *Joining // the node joins and is not admitted yet; nil otherwise
}

// Finish completes the work that a verb or the leader has begun: an init, a leave or a recover that
// was killed or that a running node began, and the installation of a file that raft has received.
// It is called at boot, before the file is opened. A node alone costs one look at the directory. It
// returns ErrUnfinished if a verb that needs the network must be run again.
func (d *Dir) Finish() (State, error) {
	if _, err := os.Lstat(d.file(clusterDir)); errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	unlock, err := d.lock()
	if err != nil {
		return State{}, fmt.Errorf("cluster: %w", err)
	}
	defer unlock()
	s, err := d.finish()
	if err != nil {
		return State{}, fmt.Errorf("cluster: %w", err)
	}
	return s, nil
}

func (d *Dir) finish() (State, error) {
	for _, verb := range []struct {
		mark   string
		finish func() error
	}{{initMark, d.finishInit}, {leaveMark, d.finishLeave}, {recoverMark, d.finishRecover}} {
		if !d.has(verb.mark) {
			continue
		}
		if err := verb.finish(); err != nil {
			return State{}, err
		}
	}
	joining, err := readMark[Joining](d, joinMark)
	if err != nil {
		return State{}, err
	}
	if d.wipes() || joining != nil && !joining.Ready {
		return State{}, d.idle()
	}
	if joining != nil {
		if joining.Fetched, err = d.hasFile(); err != nil {
			return State{}, err
		}
	}
	if _, err := d.Identity(); errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	} else if err != nil {
		return State{}, err
	}
	return State{Clustered: true, Joining: joining}, d.install()
}

// install renames a complete file that raft has received to the database.
func (d *Dir) install() error {
	m, err := store.ReadMembership(d.InstallFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (m == nil || m.Applied.Origin != "install") {
		err = fmt.Errorf("%w: it is not complete", store.ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; remove it", d.InstallFile(), err)
	}
	return d.do("install", func() error { return d.replaceDatabase(d.InstallFile()) })
}

// replaceDatabase renames a synced file beside the database to it, and syncs their directory.
func (d *Dir) replaceDatabase(from string) error {
	if err := os.Rename(from, d.Database()); err != nil {
		return err
	}
	return host.SyncDir(filepath.Dir(d.Database()))
}

// hasFile reports whether the database is there and has a membership.
func (d *Dir) hasFile() (bool, error) {
	m, err := store.ReadMembership(d.Database())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return m != nil, err
}
