package host

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process describes a process of this machine.
type Process struct {
	PID     int
	Command string   // its command line, arguments separated by spaces
	Files   []string // paths of its open files; nil if they may not be read
}

// Listener returns the process that listens on the TCP address. It returns false if no process is
// found, for example because it belongs to another user.
func Listener(addr string) (Process, bool) {
	want, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return Process{}, false
	}
	var sockets []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err == nil && len(text) <= maxText {
			sockets = append(sockets, listening(text, want.AddrPort())...)
		}
	}
	return owner(sockets)
}

// listening returns the inodes of the sockets in a table of /proc/net whose address collides with
// want.
func listening(table []byte, want netip.AddrPort) (inodes []string) {
	const stateListen = "0A"
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 10 || field[3] != stateListen {
			continue
		}
		at, ok := parseSocket(field[1])
		if !ok || at.Port() != want.Port() {
			continue
		}
		a, b := at.Addr().Unmap(), want.Addr().Unmap().WithZone("")
		if a == b || a.IsUnspecified() || !b.IsValid() || b.IsUnspecified() {
			inodes = append(inodes, field[9])
		}
	}
	return inodes
}

// parseSocket parses an address of /proc/net such as 0100007F:1F90: 32-bit words in little-endian
// order.
func parseSocket(text string) (at netip.AddrPort, ok bool) {
	words, portText, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil || len(words) != 8 && len(words) != 32 {
		return at, false
	}
	var raw []byte
	for ; words != ""; words = words[8:] {
		word, err := strconv.ParseUint(words[:8], 16, 32)
		if err != nil {
			return at, false
		}
		raw = append(raw, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(port)), ok
}

// owner returns the process that has one of the sockets open.
func owner(inodes []string) (Process, bool) {
	if len(inodes) == 0 {
		return Process{}, false
	}
	wanted := map[string]bool{}
	for _, inode := range inodes {
		wanted["socket:["+inode+"]"] = true
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*/fd")
	for _, dir := range dirs {
		files, found := openFiles(dir, wanted)
		if !found {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil {
			continue
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return Process{
			PID:     pid,
			Command: strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")),
			Files:   files,
		}, true
	}
	return Process{}, false
}

// openFiles lists the files of a directory of descriptors, and reports whether one of them is
// wanted.
func openFiles(dir string, wanted map[string]bool) (files []string, found bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		switch {
		case err != nil:
		case wanted[target]:
			found = true
		case strings.HasPrefix(target, "/"):
			files = append(files, target)
		}
	}
	return files, found
}
