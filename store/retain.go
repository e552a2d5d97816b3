package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// RetainPolicy says of how many hours, days and weeks the last snapshot is kept. Periods without one do not count.
type RetainPolicy struct {
	Hourly, Daily, Weekly int
}

// DefaultRetain reaches back a month with at most 35 snapshots.
func DefaultRetain() RetainPolicy { return RetainPolicy{Hourly: 24, Daily: 7, Weekly: 4} }

// badKept is how many copies that did not verify are kept: each is as large as the file, and the newest ones tell most.
const badKept = 3

// Keep chooses among the times of snapshots, in any order: the last one of each hour, day and ISO week (UTC), of as many as the policy
// says, the newest first. The newest of all is always kept, and so is what lies after now: a clock was wrong, and nobody knows when.
func (p RetainPolicy) Keep(times []time.Time, now time.Time) []time.Time {
	sorted := slices.Clone(times)
	slices.SortFunc(sorted, func(a, b time.Time) int { return b.Compare(a) })
	left := map[string]int{"hour": p.Hourly, "day": p.Daily, "week": p.Weekly}
	last := map[string]string{}
	var kept []time.Time
	for i, t := range sorted {
		keep := i == 0 || t.After(now)
		for unit, period := range periods(t.UTC()) {
			if !t.After(now) && left[unit] > 0 && last[unit] != period {
				left[unit], last[unit], keep = left[unit]-1, period, true
			}
		}
		if keep {
			kept = append(kept, t)
		}
	}
	return kept
}

func periods(t time.Time) map[string]string {
	year, week := t.ISOWeek()
	return map[string]string{"hour": t.Format("2006010215"), "day": t.Format("20060102"), "week": fmt.Sprintf("%d/%d", year, week)}
}

// snapshotName is how Snapshot names its files; with .bad it is a copy that did not verify.
var snapshotName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ronbox-(\d{8}T\d{6}\.\d{3}Z)-\d+\.db(\.bad|\.manifest\.json)?$`)
})

// shelf is a folder of snapshots, sorted into what a sweep handles.
type shelf struct {
	dir       string
	snapshots map[string]time.Time
	bad       map[string]time.Time
	rests     []string // partial files, and manifests, which are rests where they stand alone
}

// restAge is how long a rest was not written to before it is swept. Beside the lock of the folder it guards a snapshot that another host
// takes in it, whose lock cannot be seen.
const restAge = time.Hour

// Retain removes the snapshots in dir that the policy does not keep, each with its manifest, what killed snapshots have left an hour ago
// (.partial, a manifest alone), and all but the newest copies that did not verify. Nodes may share the folder: of each, by its manifests,
// as many are kept. Files of other names are not touched, nor snapshots without a manifest, nor what a snapshot that is being taken writes.
// It gives the paths it removed. A folder that does not exist is empty.
func Retain(dir string, now time.Time, keep RetainPolicy) (removed []string, err error) {
	return clearShelf(dir, func(s *shelf) []string { return s.surplus(now, keep) })
}

// Sweep removes what killed snapshots have left in dir an hour ago, and nothing else.
func Sweep(dir string) (removed []string, err error) {
	return clearShelf(dir, func(*shelf) []string { return nil })
}

func clearShelf(dir string, surplus func(*shelf) []string) (removed []string, err error) {
	folder, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	alone := lockFile(folder, true, 0) == nil // else a snapshot is being taken: its partial file stays
	defer func() { err = closing(folder, err) }()
	s, err := readShelf(dir)
	if err != nil {
		return nil, err
	}
	names := surplus(s)
	if alone {
		names = append(names, s.dead(time.Now().Add(-restAge))...)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := removeIfThere(path); err != nil {
			return removed, err
		}
		removed = append(removed, path)
	}
	if len(removed) > 0 {
		err = folder.Sync()
	}
	return removed, err
}

// Newest is the time of the newest snapshot of a node in dir that does not lie after now; zero: there is none.
func Newest(dir, node string, now time.Time) (newest time.Time, err error) {
	s, err := readShelf(dir)
	if errors.Is(err, os.ErrNotExist) {
		return newest, nil
	}
	if err != nil {
		return newest, err
	}
	for _, name := range s.byNode()[node] {
		if at := s.snapshots[name]; at.After(newest) && !at.After(now) {
			newest = at
		}
	}
	return newest, nil
}

func readShelf(dir string) (*shelf, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &shelf{dir: dir, snapshots: map[string]time.Time{}, bad: map[string]time.Time{}}
	for _, e := range entries {
		if e.Type().IsRegular() {
			s.add(e.Name())
		}
	}
	return s, nil
}

func (s *shelf) add(name string) {
	if strings.HasSuffix(name, ".partial") && (strings.HasPrefix(name, "ronbox-") || strings.HasPrefix(name, "pre-migrate-")) {
		s.rests = append(s.rests, name)
		return
	}
	m := snapshotName().FindStringSubmatch(name)
	if m == nil {
		return
	}
	at, err := time.Parse("20060102T150405.000Z", m[1])
	switch {
	case err != nil:
	case m[2] == ".bad":
		s.bad[name] = at
	case m[2] == "":
		s.snapshots[name] = at
	default:
		s.rests = append(s.rests, name)
	}
}

// surplus names what goes, in the order it goes: a snapshot before its manifest, which alone would be swept the next time.
func (s *shelf) surplus(now time.Time, keep RetainPolicy) []string {
	var out []string
	for _, names := range s.byNode() {
		var times []time.Time
		for _, name := range names {
			times = append(times, s.snapshots[name])
		}
		kept := keep.Keep(times, now)
		for _, name := range names {
			if !slices.ContainsFunc(kept, s.snapshots[name].Equal) {
				out = append(out, name, name+manifestSuffix)
			}
		}
	}
	bad := sortedKeys(s.bad)
	return append(out, bad[:max(0, len(bad)-badKept)]...)
}

// byNode sorts the snapshots that have a manifest by the node it names.
func (s *shelf) byNode() map[string][]string {
	out := map[string][]string{}
	for name := range s.snapshots {
		if m, err := ReadManifest(filepath.Join(s.dir, name)); err == nil {
			out[m.NodeID] = append(out[m.NodeID], name)
		}
	}
	return out
}

// dead names the rests that nobody has written to since.
func (s *shelf) dead(since time.Time) []string {
	var out []string
	for _, name := range s.rests {
		of, isManifest := strings.CutSuffix(name, manifestSuffix)
		if _, there := s.snapshots[of]; isManifest && there {
			continue
		}
		if info, err := os.Lstat(filepath.Join(s.dir, name)); err == nil && info.ModTime().Before(since) {
			out = append(out, name)
		}
	}
	return out
}

// sortedKeys lists names in byte order, which is that of their times.
func sortedKeys(m map[string]time.Time) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
