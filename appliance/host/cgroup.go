package host

import (
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
			return nil, fmt.Errorf("cgroup: cannot read %q", clip(line))
		}
		m := membership{path: path.Clean("/" + parts[2])}
		if parts[1] != "" {
			m.controllers = strings.Split(parts[1], ",")
		}
		out = append(out, m)
	}
	return out, nil
}

// group reads the bounds. Control groups that are not mounted bound nothing that could be told, nor do those of a kernel without.
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
