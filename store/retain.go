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

	"ronbox/store/lock"
)

// RetainPolicy is the number of hours, days and weeks of which the last snapshot is kept. Periods
// without a snapshot do not count.
type RetainPolicy struct {
	Hourly, Daily, Weekly int
}

// DefaultRetain keeps at most 35 snapshots of the last month.
func DefaultRetain() RetainPolicy { return RetainPolicy{Hourly: 24, Daily: 7, Weekly: 4} }

// badKept is the number of copies that did not verify to keep. Each is as large as the file.
const badKept = 3

// Keep returns the times of the snapshots to keep: the last one of each hour, day and ISO week
// (UTC), for as many periods as the policy has, newest first. The times may be in any order. The
// newest snapshot is always kept, and so are snapshots dated after now: the clock was wrong.
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
	return map[string]string{
		"hour": t.Format("2006010215"),
		"day":  t.Format("20060102"),
		"week": fmt.Sprintf("%d/%d", year, week),
	}
}

// snapshotName matches the names of Snapshot's files: snapshots, manifests, and copies that did not
// verify (.bad).
var snapshotName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ronbox-(\d{8}T\d{6}\.\d{3}Z)-\d+\.db(\.bad|\.manifest\.json)?$`)
})

// snapshotFolder is a listed folder of snapshots.
type snapshotFolder struct {
	dir       string
	snapshots map[string]time.Time
	bad       map[string]time.Time
	rests     []string // partial files, and manifests, which are leftovers if their snapshot is missing
}

// leftoverAge is the age from which a leftover file is removed. Besides the lock of the folder it
// protects a snapshot that another host is writing: the lock of that host is not visible here.
const leftoverAge = time.Hour

// Retain removes the snapshots in dir that the policy does not keep, with their manifests;
// leftovers of killed snapshots that are an hour old (.partial files, manifests without a
// snapshot); and all but the newest copies that did not verify. Nodes may share the folder: the
// policy applies to each node, identified by the manifests. Files with other names, snapshots
// without a manifest and files of a running snapshot are not touched. Retain returns the removed
// paths. A missing folder counts as empty.
func Retain(dir string, now time.Time, keep RetainPolicy) (removed []string, err error) {
	return sweepFolder(dir, "", func(s *snapshotFolder) []string { return s.surplus(now, keep) })
}

// RemoveOldest removes the oldest snapshot of a node in dir, with its manifest, and leftovers as
// Retain does. A node with at most least snapshots there keeps them all. Snapshots without a
// manifest, which were not verified, do not count and stay. It returns the removed paths.
func RemoveOldest(dir, node string, least int) (removed []string, err error) {
	return sweepFolder(dir, "", func(s *snapshotFolder) []string {
		names := s.byNode()[node]
		if len(names) <= least {
			return nil
		}
		oldest := slices.MinFunc(names, func(a, b string) int { return s.snapshots[a].Compare(s.snapshots[b]) })
		return []string{oldest, oldest + manifestSuffix}
	})
}

// Sweep removes only the leftovers of killed snapshots in dir: the .partial files of this file,
// unless a snapshot is running, and other leftovers that are an hour old. A missing folder counts
// as empty.
func (s *Store) Sweep(dir string) (removed []string, err error) {
	removed, err = sweepFolder(dir, s.Info().Incarnation, func(*snapshotFolder) []string { return nil })
	for _, path := range removed {
		s.log.Info("remains_removed", "file", path, "reason", "left by a killed process")
	}
	return removed, err
}

func sweepFolder(dir, own string, surplus func(*snapshotFolder) []string) (removed []string, err error) {
	folder, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	alone := lock.File(folder, true, 0) == nil // else a snapshot is running: keep its partial file
	defer func() { err = closing(folder, err) }()
	s, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	names := surplus(s)
	if alone {
		names = append(names, s.dead(time.Now().Add(-leftoverAge), own)...)
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

// Newest returns the time of the newest snapshot of a node in dir that is not after now, or the
// zero time.
func Newest(dir, node string, now time.Time) (newest time.Time, err error) {
	s, err := readFolder(dir)
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

func readFolder(dir string) (*snapshotFolder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &snapshotFolder{dir: dir, snapshots: map[string]time.Time{}, bad: map[string]time.Time{}}
	for _, e := range entries {
		if e.Type().IsRegular() {
			s.add(e.Name())
		}
	}
	return s, nil
}

func (s *snapshotFolder) add(name string) {
	if strings.HasSuffix(name, ".partial") &&
		(strings.HasPrefix(name, "ronbox-") || strings.HasPrefix(name, "pre-migrate-")) {
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

// surplus returns the names to remove, in order: a snapshot before its manifest, so that an
// interrupted run leaves a manifest that the next run removes.
func (s *snapshotFolder) surplus(now time.Time, keep RetainPolicy) []string {
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

// byNode groups the snapshots that have a manifest by the node in it.
func (s *snapshotFolder) byNode() map[string][]string {
	out := map[string][]string{}
	for name := range s.snapshots {
		if m, err := ReadManifest(filepath.Join(s.dir, name)); err == nil {
			out[m.NodeID] = append(out[m.NodeID], name)
		}
	}
	return out
}

// partialOf returns the end of the names of the partial files of an incarnation.
func partialOf(incarnation string) string { return "-" + incarnation + ".partial" }

// dead returns the leftovers that were last written before since, and all partial files of own.
func (s *snapshotFolder) dead(since time.Time, own string) []string {
	var out []string
	for _, name := range s.rests {
		of, isManifest := strings.CutSuffix(name, manifestSuffix)
		if _, there := s.snapshots[of]; isManifest && there {
			continue
		}
		info, err := os.Lstat(filepath.Join(s.dir, name))
		if err == nil && (info.ModTime().Before(since) || own != "" && strings.HasSuffix(name, partialOf(own))) {
			out = append(out, name)
		}
	}
	return out
}

// sortedKeys returns the names in byte order, which is the order of their times.
func sortedKeys(m map[string]time.Time) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
