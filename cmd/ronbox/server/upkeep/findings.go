package upkeep

import (
	"errors"
	"fmt"
	"math"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
)

// Bounds of the findings of the doctor.
const (
	fullSoon    = 14 * 24 * time.Hour // warned of before the file is full
	leastGrowth = 10 * time.Minute    // of observation before the growth is extrapolated
	slowP99     = time.Second         // of commits
)

// Findings judges the commits and the growth of the file in the last hour. room is the number of
// bytes left, negative if unknown. A period of the ledger is closed in the time next, 0 for never.
func (s *Series) Findings(room float64, next time.Duration) []host.Finding {
	points, _ := s.points()
	return []host.Finding{checkCommits(points), checkGrowth(points, room, next)}
}

// checkCommits warns if commits took long within the last hour.
func checkCommits(points []point) host.Finding {
	f := host.Finding{Check: "commits", Level: host.OK, Seen: "there were none in the last hour"}
	slowest := math.NaN()
	for i := range points {
		if p99 := points[i][columnP99]; !math.IsNaN(p99) && !(p99 <= slowest) {
			slowest = p99
		}
	}
	if math.IsNaN(slowest) {
		return f
	}
	f.Seen = fmt.Sprintf("99 %% of the commits in the slowest 5 s of the last hour took up to %.1f ms", slowest)
	if slowest >= float64(slowP99/time.Millisecond) {
		f.Level, f.Advice = host.Warn, "look for other load on the disk: a commit waits for two syncs"
	}
	return f
}

// checkGrowth estimates when the file is full from the growth of the last hour. room is the number
// of bytes left, negative if unknown. A period of the ledger is closed in the time next, 0 for
// never.
func checkGrowth(points []point, room float64, next time.Duration) host.Finding {
	f := host.Finding{Check: "growth", Level: host.OK}
	first, last := -1, -1
	for i := range points {
		if math.IsNaN(points[i][columnUsed]) {
			continue
		}
		if last = i; first < 0 {
			first = i
		}
	}
	span := time.Duration(last-first) * seriesEvery
	seen := unit.Short(span)
	if room < 0 || span < leastGrowth {
		f.Seen = fmt.Sprintf("not known: the node has watched the file for %s, and needs %s", seen,
			unit.Short(leastGrowth))
		return f
	}
	grown := points[last][columnUsed] - points[first][columnUsed]
	if grown <= 0 {
		f.Seen = fmt.Sprintf("the file has not grown in %s", seen)
		return f
	}
	hours := room / grown * span.Hours()
	when := fmt.Sprintf("in %.0f d", hours/24)
	switch {
	case hours < 48:
		when = fmt.Sprintf("in %.0f h", hours)
	case hours > 24*365*10:
		when = "in more than 10 years"
	}
	f.Seen = fmt.Sprintf("file full %s, if it grows on as in the last %s (%.1f MiB)", when, seen, grown/(1<<20))
	if hours < fullSoon.Hours() {
		f.Level, f.Advice = host.Warn, "raise store.max_bytes or make room on the disk before then"
	}
	if next > 0 && hours < next.Hours() {
		f.Level, f.Advice = host.Warn, "raise store.max_bytes, or lower ledger.retention: a period closes before then"
		f.Seen += fmt.Sprintf("; the next period of the ledger is closed in %s", unit.Short(next.Truncate(time.Minute)))
	}
	return f
}

// Finding warns if scheduled snapshots fail or are overdue.
func (b *Backup) Finding() host.Finding {
	if failed := b.fault(); failed != nil {
		return brokenBackup(failed)
	}
	every, last, started := b.every(), b.last.Load(), b.d.Started()
	if last == 0 || last == started.UnixNano() { // the start stands for a snapshot until there is one
		return checkBackup(every, b.d.Now().Sub(started), false)
	}
	return checkBackup(every, b.d.Now().Sub(time.Unix(0, last)), true)
}

// brokenBackup warns that scheduled snapshots fail.
func brokenBackup(err error) host.Finding {
	f := host.Finding{Check: "backup", Level: host.Warn, Seen: "scheduled snapshots fail: " + err.Error()}
	f.Advice = "correct the cause, then take one with `ronbox db snapshot DIR`"
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); ok {
		f.Advice = "store.snapshot_dir: " + dir.Next(dir.Error()) + "; then take one there with `ronbox db snapshot`"
	}
	if errors.Is(err, store.ErrFull) {
		f.Advice = "make room, or let store.snapshot_dir name a folder on another disk; the two newest stay"
	}
	return f
}

// checkBackup judges the time since the last snapshot, or since the start of the node if none was
// taken.
func checkBackup(every, since time.Duration, taken bool) host.Finding {
	f := host.Finding{Check: "backup", Level: host.OK}
	age, due := unit.Short(max(0, since).Truncate(time.Second)), unit.Short(every)
	f.Seen = fmt.Sprintf("no snapshot for %s; one is due every %s", age, due)
	if taken {
		f.Seen = fmt.Sprintf("the last snapshot is %s old, one is due every %s", age, due)
	}
	if since > 2*every {
		f.Level, f.Advice = host.Warn, "see why in the log (snapshot), and take one with `ronbox db snapshot DIR`"
	}
	return f
}
