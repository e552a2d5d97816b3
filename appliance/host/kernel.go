package host

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is which Linux runs.
type Kernel struct {
	Release             string // "6.1.0-18-amd64"
	Major, Minor, Patch int
}

// ReadKernel asks the kernel.
func ReadKernel() (Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{}, fmt.Errorf("uname: %w", err)
	}
	return parseKernel(unix.ByteSliceToString(u.Release[:]))
}

// parseKernel reads a release: two or three numbers with points, then whatever the distribution adds.
func parseKernel(release string) (Kernel, error) {
	head := release
	if i := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i >= 0 {
		head = release[:i]
	}
	parts := strings.Split(head, ".")
	if len(parts) < 2 {
		return Kernel{}, fmt.Errorf("kernel release %q: does not begin with two numbers", clip(release))
	}
	var n [3]int
	for i := range min(len(parts), len(n)) {
		v, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil && i < 2 {
			return Kernel{}, fmt.Errorf("kernel release %q: does not begin with two numbers", clip(release))
		}
		n[i] = int(v)
	}
	return Kernel{Release: release, Major: n[0], Minor: n[1], Patch: n[2]}, nil
}

// atLeast compares the first two numbers.
func (k Kernel) atLeast(major, minor int) bool {
	return k.Major > major || k.Major == major && k.Minor >= minor
}

// FastCommitFixed says whether ext4's fast commits are safe: two faults of theirs that can damage a database are mended in 5.17 and in the
// long-lived series from 5.10.94 and 5.15.27 on; older than 5.10 has no fast commits.
func (k Kernel) FastCommitFixed() bool {
	switch {
	case k.atLeast(5, 17) || !k.atLeast(5, 10):
		return true
	case k.Major == 5 && k.Minor == 10:
		return k.Patch >= 94
	case k.Major == 5 && k.Minor == 15:
		return k.Patch >= 27
	}
	return false
}
