package appliance

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ronbox/store"
)

// roomFor refuses a copy of the file that would fill the disk that the file is on: the node would take no more writes until
// the copy is gone. What cannot be found out is left to the copying.
func (n *Node) roomFor(dir string, compact bool) error {
	var file, folder unix.Stat_t
	for unix.Stat(dir, &folder) != nil {
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return nil
	}
	if unix.Stat(n.store.Path(), &file) != nil || file.Dev != folder.Dev {
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return nil
	}
	own := n.store.Bytes()
	need := own
	if compact {
		need -= n.store.FreeBytes()
	}
	return copyFits(need, int64(disk.Bavail)*int64(disk.Bsize), own, n.conf().Store.MinFree.Bytes())
}

// copyFits judges a copy of need bytes beside a file of own bytes by what the store keeps free, which is no more than an
// eighth of what it could have.
func copyFits(need, free, own, minFree int64) error {
	if keep := min(minFree, (free+own)/8); free-need < keep {
		return fmt.Errorf("%w: the copy takes %d MiB, of the %d MiB that are free here %d MiB are kept: name a folder on another disk",
			store.ErrFull, need>>20, free>>20, keep>>20)
	}
	return nil
}
