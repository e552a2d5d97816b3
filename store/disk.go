package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFS are the file systems whose locks and syncs cannot be trusted, by number.
func networkFS() map[int64]string {
	return map[int64]string{
		0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x01021997: "9p", 0x65735546: "FUSE", 0x00C36400: "Ceph",
		0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x564C: "NCP", 0x0BD00BD0: "Lustre", 0x47504653: "GPFS",
		0x19830326: "BeeGFS", 0x20030528: "OrangeFS", 0x01161970: "GFS2", 0x7461636F: "OCFS2", 0x013111A8: "IBRIX", 0xAAD7AAEA: "PanFS",
	}
}

// ext4 is its number.
const ext4 = 0xEF53

// checkDisk refuses a file on a network file system, and warns of one on which writes have been lost.
func (s *Store) checkDisk() error {
	var st unix.Statfs_t
	path := s.opt.Path
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	magic := int64(st.Type) & 0xFFFFFFFF
	if err := judgeDisk(path, magic, networkFS(), s.config().AllowNetwork); err != nil {
		return err
	}
	if magic == ext4 && fastCommits(path) && fastCommitBroken(kernelRelease()) {
		s.log.Warn("fast_commit", "reason", "this kernel can lose writes on ext4 with fast_commit", "kernel", kernelRelease(),
			"next", "run 5.17 or newer, or turn it off with tune2fs -O ^fast_commit")
	}
	return nil
}

func judgeDisk(path string, magic int64, refused map[int64]string, allow bool) error {
	if name, network := refused[magic]; network && !allow {
		return fmt.Errorf("%w: %s is on %s; move it to a local disk, or set store.allow_network", ErrNetwork, path, name)
	}
	return nil
}

// fastCommits tells whether the ext4 that holds path makes fast commits, which its fc_info counts. What cannot be read counts as no.
func fastCommits(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false
	}
	info, err := os.ReadFile(filepath.Join("/proc/fs/ext4", filepath.Base(device), "fc_info"))
	return err == nil && countsFastCommits(string(info))
}

// countsFastCommits reads "fc stats:\n12 commits\n…".
func countsFastCommits(info string) bool {
	for line := range strings.Lines(info) {
		if n, ok := strings.CutSuffix(strings.TrimSpace(line), " commits"); ok {
			count, err := strconv.ParseUint(n, 10, 64)
			return err == nil && count > 0
		}
	}
	return false
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// fastCommitBroken tells whether a kernel has fast commits (from 5.10) without the fixes of 5.17: a file that was grown by truncating, as
// the database is, could lose what was written to its new part. A release that cannot be read counts as fixed.
func fastCommitBroken(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major == 5 && minor >= 10 && minor < 17
}
