package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Group holds the bounds that control groups set for the process, including those of parent groups.
// Zero means no bound.
type Group struct {
	Memory int64   // bytes
	Swap   int64   // bytes; -1: no swap
	CPUs   float64 // cores
}

// noMemoryLimit is the value of version 1 for no limit: the largest number of whole pages,
// regardless of their size.
const noMemoryLimit = 1 << 62

// membership is one line of /proc/self/cgroup.
type membership struct {
	controllers []string // empty: version 2
	path        string
}

// parseMemberships parses the text of /proc/self/cgroup.
func parseMemberships(r io.Reader) ([]membership, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return nil, err
	}
	var out []membership
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("cgroup: cannot read %.80q", line)
		}
		m := membership{path: path.Clean("/" + parts[2])}
		if parts[1] != "" {
			m.controllers = strings.Split(parts[1], ",")
		}
		out = append(out, m)
	}
	return out, nil
}

// group reads the bounds. Control groups that are not mounted, or not supported by the kernel, set
// no bound.
func (h host) group() (Group, error) {
	mounts, err := h.mounts()
	if err != nil {
		return Group{}, err
	}
	text, err := h.text("proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return Group{}, nil
	}
	if err != nil {
		return Group{}, err
	}
	members, err := parseMemberships(strings.NewReader(text))
	if err != nil {
		return Group{}, err
	}
	var g Group
	for _, m := range members {
		for _, dir := range groupDirs(m, mounts) {
			if len(m.controllers) == 0 {
				g.narrow(h.bound2(dir))
			} else {
				g.narrow(h.bound1(dir, m.controllers))
			}
		}
	}
	return g, nil
}

// groupDirs returns the folders of a group and of its parents, as far as they are mounted.
func groupDirs(m membership, mounts []mount) []string {
	at, ok := groupMount(m, mounts)
	if !ok {
		return nil
	}
	rel := "/" // if the group is not mounted, a parent may be
	if within(at.Root, m.path) {
		rel = path.Clean("/" + strings.TrimPrefix(m.path, path.Clean(at.Root)))
	}
	var out []string
	for ; ; rel = path.Dir(rel) {
		out = append(out, strings.TrimPrefix(path.Join(at.Point, rel), "/"))
		if rel == "/" {
			return out
		}
	}
}

// groupMount returns the mount of m's hierarchy that shows its group, or else its first mount.
func groupMount(m membership, mounts []mount) (best mount, found bool) {
	for _, at := range mounts {
		v2 := len(m.controllers) == 0 && at.Type == "cgroup2"
		v1 := at.Type == "cgroup" &&
			slices.ContainsFunc(
				m.controllers,
				func(c string) bool { return slices.Contains(strings.Split(at.Super, ","), c) },
			)
		if !v2 && !v1 {
			continue
		}
		if within(at.Root, m.path) {
			return at, true
		}
		if !found {
			best, found = at, true
		}
	}
	return best, found
}

// bound2 reads the bounds in one folder of version 2.
func (h host) bound2(dir string) (g Group) {
	for _, name := range []string{"/memory.max", "/memory.high"} { // beyond high the process is throttled
		n, _ := h.number(dir + name) // "max" is not a number: no bound
		g.narrow(Group{Memory: n})
	}
	if n, err := h.number(dir + "/memory.swap.max"); err == nil {
		g.Swap = n
		if n == 0 {
			g.Swap = -1
		}
	}
	if text, err := h.text(dir + "/cpu.max"); err == nil {
		quota, period, _ := strings.Cut(text, " ")
		g.CPUs = cores(quota, period)
	}
	return g
}

// bound1 reads the bounds in one folder of version 1.
func (h host) bound1(dir string, controllers []string) (g Group) {
	if slices.Contains(controllers, "memory") {
		if n, err := h.number(dir + "/memory.limit_in_bytes"); err == nil && n < noMemoryLimit {
			g.Memory = n
		}
	}
	if slices.Contains(controllers, "cpu") {
		quota, _ := h.text(dir + "/cpu.cfs_quota_us")
		period, _ := h.text(dir + "/cpu.cfs_period_us")
		g.CPUs = cores(quota, period)
	}
	return g
}

// cores returns the number of cores for a quota of microseconds per period, or 0 for no quota.
func cores(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || !(q > 0) || !(p > 0) || q > 1e12 || p > 1e12 {
		return 0
	}
	return q / p
}

// narrow reduces each bound to that of by if that is tighter.
func (g *Group) narrow(by Group) {
	if by.Memory > 0 && (g.Memory == 0 || by.Memory < g.Memory) {
		g.Memory = by.Memory
	}
	if by.Swap != 0 && (g.Swap == 0 || by.Swap < g.Swap) {
		g.Swap = by.Swap
	}
	if by.CPUs > 0 && (g.CPUs == 0 || by.CPUs < g.CPUs) {
		g.CPUs = by.CPUs
	}
}

// mount is one line of /proc/self/mountinfo.
type mount struct {
	Root   string // the folder of the file system that is mounted
	Point  string // where it is mounted
	Type   string // "ext4"
	Source string // "/dev/nvme0n1p2"
	Super  string // options of the file system, comma separated
}

// parseMounts parses the text of mountinfo. It returns an error for a line that it does not
// understand.
func parseMounts(r io.Reader) ([]mount, error) {
	var out []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		m, ok := parseMount(strings.Split(lines.Text(), " "))
		if !ok {
			return nil, fmt.Errorf("mountinfo: cannot read %.80q", lines.Text())
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

// parseMount parses "36 35 98:0 /root /point opts optional… - type source super". The source may be
// empty.
func parseMount(f []string) (mount, bool) {
	if len(f) < 9 {
		return mount{}, false
	}
	dash := 6
	for dash < len(f) && f[dash] != "-" {
		dash++
	}
	if len(f) < dash+3 {
		return mount{}, false
	}
	m := mount{Root: unescape(f[3]), Point: unescape(f[4]), Type: f[dash+1], Source: unescape(f[dash+2])}
	if len(f) > dash+3 {
		m.Super = f[dash+3]
	}
	return m, m.Point != "" && m.Type != ""
}

// unescape decodes octal escapes such as \040, which encode space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountOf returns the mount that contains an absolute path: the deepest one, and the last one if
// several have the same mount point.
func mountOf(all []mount, name string) (mount, bool) {
	best, found := mount{}, false
	for _, m := range all {
		if within(m.Point, name) && (!found || len(m.Point) >= len(best.Point)) {
			best, found = m, true
		}
	}
	return best, found
}

// within reports whether name is dir or below it.
func within(dir, name string) bool {
	dir, name = path.Clean(dir), path.Clean(name)
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

func (h host) mounts() ([]mount, error) {
	text, err := h.text("proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(strings.NewReader(text))
}
