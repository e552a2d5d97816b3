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

// host reads the machine through a file tree, in tests a map.
type host struct {
	files fs.FS // rooted at "/"
}

func here() host { return host{files: os.DirFS("/")} }

// maxText bounds a file of /proc or /sys that is read whole: the longest, mountinfo of a busy container host, has a few hundred KiB.
const maxText = 4 << 20

// text is the content of a file, without the space around it. path has no leading "/".
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

// number reads a file that holds one whole number.
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

// Memory is the machine's, in bytes.
type Memory struct {
	Total     int64
	Available int64 // without swapping
}

// ReadMemory reads /proc/meminfo.
func ReadMemory() (Memory, error) { return here().memory() }

func (h host) memory() (Memory, error) {
	text, err := h.text("proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	return parseMemory(strings.NewReader(text))
}

// parseMemory reads the text of meminfo: "MemTotal:  12345 kB".
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
		n, err := strconv.ParseInt(f[1], 10, 50) // KiB: a bit fewer, so that the bytes fit
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
	disk bool  // memory that is written back to a disk
}

// Compressed says that the area is memory itself (zram), which ends with the power.
func (a SwapArea) Compressed() bool { return strings.HasPrefix(a.Name, "/dev/zram") && !a.disk }

// ReadSwap lists the areas that are in use. None means that no page of the process can reach a disk.
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

// parseSwap reads the text of swaps: a heading, then "/dev/sda2  partition  2097148  0  -2".
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

// atLeast compares the first two numbers.
func (k Kernel) atLeast(major, minor int) bool {
	return k.Major > major || k.Major == major && k.Minor >= minor
}

// FastCommitFixed reports whether ext4's fast commits are safe: two faults of theirs that can damage a database are mended in 5.17 and in the
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

// Clock is what the kernel thinks of its own clock.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration // by how much it may be off; meaningless while not synchronised
}

// ReadClock asks the kernel, which hears it from the time daemon.
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

// PortFree says nil if the node could listen at addr, by doing so for a moment.
func PortFree(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// ReadSoMaxConn is how many connections the kernel lets wait for accept, at most.
func ReadSoMaxConn() (int64, error) { return here().number("proc/sys/net/core/somaxconn") }
