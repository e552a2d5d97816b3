package host

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// host reads facts from a file tree, which is a map in tests.
type host struct {
	files fs.FS // rooted at "/"
}

func here() host { return host{files: os.DirFS("/")} }

// maxText bounds a file of /proc or /sys. The longest, mountinfo on a busy container host, has some
// hundred KiB.
const maxText = 4 << 20

// text returns the trimmed content of a file. path has no leading "/".
func (h host) text(path string) (string, error) {
	b, err := fs.ReadFile(h.files, path)
	if err != nil {
		return "", err
	}
	if len(b) > maxText {
		return "", fmt.Errorf("/%s has more than %d bytes", path, maxText)
	}
	return strings.TrimSpace(string(b)), nil
}

// number reads a file that contains one integer.
func (h host) number(path string) (int64, error) {
	s, err := h.text(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/%s: %.80q is not a number", path, s)
	}
	return n, nil
}

// Memory is the memory of the machine, in bytes.
type Memory struct {
	Total     int64
	Available int64 // without swapping
}

// ReadMemory reads /proc/meminfo.
func ReadMemory() (Memory, error) { return here().memory() }

// UsableMemory returns the memory that the process may use, in bytes: that of the machine, or less
// if its control group sets a bound. It is 0 if neither can be read.
func UsableMemory() int64 {
	m, _ := ReadMemory()
	g, _ := here().group()
	return usable(m, g)
}

func usable(m Memory, g Group) int64 {
	if g.Memory > 0 && (m.Total == 0 || g.Memory < m.Total) {
		return g.Memory
	}
	return m.Total
}

func (h host) memory() (Memory, error) {
	text, err := h.text("proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	return parseMemory(strings.NewReader(text))
}

// parseMemory parses the text of meminfo: "MemTotal:  12345 kB".
func parseMemory(r io.Reader) (Memory, error) {
	var m Memory
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 50) // KiB: 50 bits, so that the bytes fit 64 bits
		switch {
		case err != nil:
		case f[0] == "MemTotal:":
			m.Total = n << 10
		case f[0] == "MemAvailable:":
			m.Available = n << 10
		}
	}
	if m.Total <= 0 {
		return Memory{}, fmt.Errorf("meminfo: no MemTotal in it")
	}
	return m, nil
}

// SwapArea is one line of /proc/swaps.
type SwapArea struct {
	Name string
	Size int64 // bytes
	disk bool  // compressed memory that is also written to a disk
}

// Compressed reports whether the area is in memory (zram), so that it is lost with the power.
func (a SwapArea) Compressed() bool { return strings.HasPrefix(a.Name, "/dev/zram") && !a.disk }

// ReadSwap lists the active areas. If there are none, no page of the process can reach a disk.
func ReadSwap() ([]SwapArea, error) { return here().swap() }

func (h host) swap() ([]SwapArea, error) {
	text, err := h.text("proc/swaps")
	if err != nil {
		return nil, err
	}
	areas, err := parseSwap(strings.NewReader(text))
	for i := range areas {
		behind, err := h.text("sys/block/" + path.Base(areas[i].Name) + "/backing_dev")
		areas[i].disk = err == nil && behind != "none"
	}
	return areas, err
}

// parseSwap parses the text of swaps: a heading, then "/dev/sda2  partition  2097148  0  -2".
func parseSwap(r io.Reader) ([]SwapArea, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return nil, err
	}
	var out []SwapArea
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "Filename" {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("swaps: cannot read %.80q", line)
		}
		size, err := strconv.ParseInt(f[2], 10, 50)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("swaps: cannot read %.80q", line)
		}
		out = append(out, SwapArea{Name: unescape(f[0]), Size: size << 10})
	}
	return out, nil
}

// Kernel is the version of the running Linux kernel.
type Kernel struct {
	Release             string // "6.1.0-18-amd64"
	Major, Minor, Patch int
}

// ReadKernel returns the version of the running kernel.
func ReadKernel() (Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{}, fmt.Errorf("uname: %w", err)
	}
	return parseKernel(unix.ByteSliceToString(u.Release[:]))
}

// parseKernel parses a release: two or three numbers with dots, then any suffix of the
// distribution.
func parseKernel(release string) (Kernel, error) {
	head := release
	if i := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i >= 0 {
		head = release[:i]
	}
	parts := strings.Split(head, ".")
	if len(parts) < 2 {
		return Kernel{}, fmt.Errorf("kernel release %.80q: does not begin with two numbers", release)
	}
	var n [3]int
	for i := range min(len(parts), len(n)) {
		v, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil && i < 2 {
			return Kernel{}, fmt.Errorf("kernel release %.80q: does not begin with two numbers", release)
		}
		n[i] = int(v)
	}
	return Kernel{Release: release, Major: n[0], Minor: n[1], Patch: n[2]}, nil
}

// atLeast reports whether the version is major.minor or later.
func (k Kernel) atLeast(major, minor int) bool {
	return k.Major > major || k.Major == major && k.Minor >= minor
}

// FastCommitFixed reports whether fast commits of ext4 are safe. Two bugs in them can damage a
// database. They are fixed in 5.17, and in the long-term series from 5.10.94 and 5.15.27 on.
// Kernels before 5.10 have no fast commits.
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

// Clock is the kernel's state of its clock.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration // estimated error; meaningless if not synchronised
}

// ReadClock returns the kernel's state, which the time daemon sets.
func ReadClock() (Clock, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Clock{}, fmt.Errorf("adjtimex: %w", err)
	}
	return clockOf(state, t.Status, int64(t.Maxerror)), nil
}

func clockOf(state int, status int32, maxErrorMicros int64) Clock {
	return Clock{
		Synchronised: state != unix.TIME_ERROR && status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(maxErrorMicros) * time.Microsecond,
	}
}

// PortFree returns nil if the node can listen on addr. It tries to do so for a moment.
func PortFree(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// ReadSoMaxConn returns the kernel's bound of connections that wait for accept.
func ReadSoMaxConn() (int64, error) { return here().number("proc/sys/net/core/somaxconn") }
