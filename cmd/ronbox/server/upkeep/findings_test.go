package upkeep

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/store"
)

// used returns points in which the file has the given used bytes.
func used(all ...float64) []point {
	out := make([]point, len(all))
	for i, v := range all {
		out[i] = noPoint()
		out[i][columnUsed] = v
	}
	return out
}

// line returns n points from one size to another.
func line(n int, from, to float64) []point {
	all := make([]float64, n)
	for i := range all {
		all[i] = from + (to-from)*float64(i)/float64(n-1)
	}
	return used(all...)
}

// The time until the file is full is extrapolated from ten minutes of growth or more.
func TestCheckGrowth(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name   string
		points []point
		room   float64
		next   time.Duration // closing of a period
		level  host.Level
		seen   string
	}{
		{"no points", nil, mib, 0, host.OK, "not known"},
		{"too early", line(120, 0, mib), mib, 0, host.OK, "not known"},
		{"room is unknown", line(720, 0, mib), -1, 0, host.OK, "not known"},
		{"no growth", line(721, mib, mib), mib, 0, host.OK, "has not grown in 1h"},
		{"it shrinks", line(721, 2*mib, mib), mib, 0, host.OK, "has not grown"},
		{"41 days", line(721, 0, mib), 41 * 24 * mib, 0, host.OK, "file full in 41 d"},
		{"10 days", line(721, 0, mib), 10 * 24 * mib, 0, host.Warn, "file full in 10 d"},
		{"5 hours", line(721, 0, mib), 5 * mib, 0, host.Warn, "file full in 5 h"},
		{"full", line(721, 0, mib), 0, 0, host.Warn, "file full in 0 h"},
		{"half an hour", line(361, 0, mib), 5 * mib, 0, host.Warn, "in 2 h"},
		{"very long", line(721, 0, 1), 1 << 50, 0, host.OK, "in more than 10 years"},
		{"with gaps", append(used(math.NaN()), append(line(721, 0, mib), noPoint())...), 5 * mib, 0, host.Warn, "in 5 h"},
		{"a closing before", line(721, 0, mib), 41 * 24 * mib, 40 * 24 * time.Hour, host.OK, "file full in 41 d"},
		{"a closing after", line(721, 0, mib), 41 * 24 * mib, 42 * 24 * time.Hour, host.Warn, "is closed in 42d"},
	} {
		f := checkGrowth(tt.points, tt.room, tt.next)
		if f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) || (f.Level == host.OK) != (f.Advice == "") {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}

func TestCheckCommits(t *testing.T) {
	at := func(ms float64) point {
		p := noPoint()
		p[columnP99] = ms
		return p
	}
	if seriesNames()[columnP99].Name != "commit_p99_ms" {
		t.Fatal("another column")
	}
	for seen, points := range map[string][]point{
		"there were none": used(1),
		"up to 3.0 ms":    {at(2), noPoint(), at(3), at(1)},
		"up to 1500.0 ms": {at(1500), at(1)},
	} {
		f := checkCommits(points)
		if !strings.Contains(f.Seen, seen) || (f.Level == host.Warn) != strings.Contains(seen, "1500") {
			t.Errorf("%s: %+v", seen, f)
		}
	}
}

func TestCheckBackup(t *testing.T) {
	for _, tt := range []struct {
		every, since time.Duration
		taken        bool
		level        host.Level
		seen         string
	}{
		{time.Hour, 3 * time.Second, false, host.OK, "no snapshot for 3s; one is due every 1h"},
		{time.Hour, 3 * time.Hour, false, host.Warn, "no snapshot for 3h"},
		{time.Hour, -time.Second, true, host.OK, "the last snapshot is 0s old"},
		{time.Hour, 2 * time.Hour, true, host.OK, "2h old, one is due every 1h"},
		{time.Hour, 3 * time.Hour, true, host.Warn, "3h old"},
	} {
		if f := checkBackup(tt.every, tt.since, tt.taken); f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) {
			t.Errorf("%v, %v, %v: %+v", tt.every, tt.since, tt.taken, f)
		}
	}
}

// The findings of the doctor are those of the points that were taken.
func TestFindingsOfSeries(t *testing.T) {
	const mib = 1 << 20
	s := bareSeries()
	for i, p := range line(seriesPoints, 0, mib) {
		s.add(time.Unix(int64(i)*5, 0), p)
	}
	growth := s.Findings(mib, 0)[1]
	if growth.Check != "growth" || growth.Level != host.Warn || !strings.HasPrefix(growth.Seen, "file full in ") {
		t.Errorf("growth: %+v", growth)
	}
}

// A start is not taken for a snapshot, neither before the janitor has looked for one nor after it
// has found none.
func TestBackupOfANewNode(t *testing.T) {
	cfg := config.Default()
	cfg.Store.SnapshotEvery = unit.Duration(time.Hour)
	started := time.Unix(1000, 0)
	at := started.Add(time.Minute)
	b := NewBackup(BackupDeps{
		Config:  func() *config.Config { return cfg },
		Now:     func() time.Time { return at },
		Started: func() time.Time { return started },
	})
	const none = "no snapshot for 1m; one is due every 1h"
	if f := b.Finding(); f.Seen != none {
		t.Errorf("before the janitor: %+v", f)
	}
	b.Taken(started)
	if f := b.Finding(); f.Seen != none {
		t.Errorf("without a snapshot: %+v", f)
	}
	b.Taken(at)
	if f := b.Finding(); !strings.HasPrefix(f.Seen, "the last snapshot is 0s old") {
		t.Errorf("with a snapshot: %+v", f)
	}
}

// A copy on the disk of the database must leave the free space that the store requires. A copy on
// another disk has no such limit.
func TestRoomForACopy(t *testing.T) {
	const mb, gb = 1 << 20, 1 << 30
	for _, tt := range []struct {
		doc                      string
		need, free, own, minFree int64
		want                     bool
	}{
		{"plenty", gb, 4 * gb, gb, 256 * mb, true},
		{"just", gb, gb + 256*mb, gb, 256 * mb, true},
		{"it would take of what is kept free", gb, gb + 255*mb, gb, 256 * mb, false},
		{"it would not fit at all", gb, gb / 2, gb, 256 * mb, false},
		{"a small disk keeps an eighth", 16 * mb, 40 * mb, 16 * mb, 256 * mb, true},
	} {
		if err := copyFits(tt.need, tt.free, tt.own, tt.minFree); (err == nil) != tt.want ||
			err != nil && !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}
