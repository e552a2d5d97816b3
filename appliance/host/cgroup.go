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

// Group is what the control groups of the process allow it, all those above it counted. Zero is no bound.
type Group struct {
	Memory int64   // bytes
	Swap   int64   // bytes; -1: none at all
	CPUs   float64 // cores
}

// noMemoryLimit is what version 1 has for no limit: the largest number of whole pages, whatever their size.
const noMemoryLimit = 1 << 62

// membership is one line of /proc/self/cgroup.
type membership struct {
	controllers []string // empty: version 2
	path        string
}

// parseMemberships reads the text of /proc/self/cgroup.
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

// group reads the bounds. Control groups that are not mounted, or that the kernel lacks, bound nothing.
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

// groupDirs are the folders of a group and of those above it, as far as they are mounted.
func groupDirs(m membership, mounts []mount) []string {
	at, ok := groupMount(m, mounts)
	if !ok {
		return nil
	}
	rel := "/" // a group that is mounted nowhere has bounds above it at least
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

// groupMount is the mount of m's hierarchy that shows its group, else the first one.
func groupMount(m membership, mounts []mount) (best mount, found bool) {
	for _, at := range mounts {
		v2 := len(m.controllers) == 0 && at.Type == "cgroup2"
		v1 := at.Type == "cgroup" && slices.ContainsFunc(m.controllers, func(c string) bool { return slices.Contains(strings.Split(at.Super, ","), c) })
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

// bound2 reads one folder of version 2.
func (h host) bound2(dir string) (g Group) {
	for _, name := range []string{"/memory.max", "/memory.high"} { // beyond high it is throttled
		n, _ := h.number(dir + name) // "max" is no number: no bound
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

// bound1 reads one folder of version 1.
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

// cores is how many cores a quota of microseconds in each period is, 0 for none.
func cores(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || !(q > 0) || !(p > 0) || q > 1e12 || p > 1e12 {
		return 0
	}
	return q / p
}

// narrow takes the tighter of each bound.
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

// parseMounts reads the text of mountinfo. Lines it does not understand are an error.
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

// parseMount reads "36 35 98:0 /root /point opts optional… - type source super", of which the source may be empty.
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

// unescape undoes \040 and its like, which stand for space, tab, newline and backslash.
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

// mountOf gives the mount that holds an absolute path: the deepest one above it, of several at one place the last.
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
