package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/store/lock"
)

func TestKeep(t *testing.T) {
	at := func(text string) time.Time {
		v, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	now := at("2026-03-15 12:00") // a Sunday
	for _, tt := range []struct {
		name   string
		policy RetainPolicy
		given  string
		want   string
	}{
		{"none", DefaultRetain(), "", ""},
		{"the newest whatever the policy", RetainPolicy{}, "2026-03-15 11:00,2025-01-01 00:00", "2026-03-15 11:00"},
		{"the last of an hour", RetainPolicy{Hourly: 2},
			"2026-03-15 11:50,2026-03-15 11:10,2026-03-15 10:59,2026-03-15 09:00",
			"2026-03-15 11:50,2026-03-15 10:59"},
		{"the last of a day", RetainPolicy{Daily: 2},
			"2026-03-15 11:50,2026-03-15 01:00,2026-03-14 23:00,2026-03-13 23:00",
			"2026-03-15 11:50,2026-03-14 23:00"},
		{"the last of a week", RetainPolicy{Weekly: 2},
			"2026-03-15 11:50,2026-03-09 00:00,2026-03-08 23:59,2026-03-01 12:00",
			"2026-03-15 11:50,2026-03-08 23:59"},
		{"a year has its weeks", RetainPolicy{Weekly: 9}, "2026-01-01 00:00,2025-12-31 00:00,2025-12-28 00:00",
			"2026-01-01 00:00,2025-12-28 00:00"},
		{"periods without one do not count", RetainPolicy{Hourly: 2},
			"2026-03-15 11:00,2024-01-01 05:00,2023-01-01 05:00",
			"2026-03-15 11:00,2024-01-01 05:00"},
		{"what lies after now takes no place", RetainPolicy{Hourly: 1},
			"2027-01-01 00:00,2026-03-15 13:00,2026-03-15 11:00,2026-03-15 10:00",
			"2027-01-01 00:00,2026-03-15 13:00,2026-03-15 11:00"},
	} {
		var given, got []time.Time
		for text := range strings.SplitSeq(tt.given, ",") {
			if text != "" {
				given = append(given, at(text))
			}
		}
		slices.Reverse(given)
		got = tt.policy.Keep(given, now)
		var text []string
		for _, g := range got {
			text = append(text, g.Format("2006-01-02 15:04"))
		}
		if strings.Join(text, ",") != tt.want {
			t.Errorf("%s: kept %v, want %s", tt.name, text, tt.want)
		}
	}
}

// For any times: Keep returns a subset within the bounds that includes the newest; keeping again
// keeps all of it; and every hour of the last day that had a snapshot still has one.
func TestKeepLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var times []time.Time
		for _, minutes := range rapid.SliceOfN(rapid.IntRange(0, 60*24*60), 0, 60).Draw(t, "minutes before") {
			times = append(times, day.Add(-time.Duration(minutes)*time.Minute))
		}
		p := DefaultRetain()
		kept := p.Keep(times, day)
		if len(kept) > p.Hourly+p.Daily+p.Weekly ||
			len(times) > 0 && !kept[0].Equal(slices.MaxFunc(times, time.Time.Compare)) {
			t.Fatalf("kept %d of %d, the newest %v", len(kept), len(times), kept)
		}
		hours := map[string]bool{}
		for _, k := range kept {
			hours[k.Format("2006010215")] = true
			if !slices.ContainsFunc(times, k.Equal) {
				t.Fatalf("kept %v, which is not there", k)
			}
		}
		for _, at := range times {
			if at.After(day.Add(-23*time.Hour)) && !hours[at.Format("2006010215")] {
				t.Fatalf("nothing of the hour of %v", at)
			}
		}
		if again := p.Keep(kept, day); len(again) != len(kept) {
			t.Fatalf("keeping twice leaves %d of %d", len(again), len(kept))
		}
	})
}

// writeAged writes files that were last modified two hours ago. Their manifests are of one node.
func writeAged(t *testing.T, dir string, names []string) {
	t.Helper()
	for _, n := range names {
		text, path := "", filepath.Join(dir, n)
		if strings.HasSuffix(n, manifestSuffix) {
			text = `{"format":1,"node_id":"n1"}`
		}
		old := time.Now().Add(-2 * leftoverAge)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
}

// The next snapshot removes the partial files that killed snapshots of the same file have left,
// however new they are. Those of other files may belong to another host.
func TestSnapshotSweeps(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	dir := t.TempDir()
	own := filepath.Join(dir, "ronbox-20260301T120000.000000001Z"+partialOf(r.Info().Incarnation))
	other := filepath.Join(dir, "ronbox-20260301T120000.000000001Z"+partialOf("01J00000000000000000000000"))
	for _, path := range []string{own, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running, err := lock.ShareFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if swept, err := r.Sweep(dir); err != nil || len(swept) != 0 {
		t.Errorf("beside a running snapshot: swept %v, %v", swept, err)
	}
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	want := []string{other, m.Path, m.ManifestPath}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v, %v; want %v", left, err, want)
	}
}

// Retain removes only surplus snapshots and leftovers of killed snapshots. The files of a running
// snapshot stay.
func TestRetain(t *testing.T) {
	dir := t.TempDir()
	stay := []string{
		"ronbox-20260301T110000.000Z-7.db",
		"ronbox-20260301T110000.000Z-7.db.manifest.json",
		"mine.db",
		"ronbox.db",
		"pre-migrate-v1-3.db",
		"ronbox-20260301T100000.000Z-3.db.bad",
		"ronbox-20260301T090000.000Z-2.db.bad",
		"ronbox-20260301T080000.000Z-1.db.bad",
		"x.partial",
		"ronbox-20250301T090000.000Z-1.db",
		"ronbox-20260301T120000.000000002Z.partial",
		"ronbox-20250301T100000.000Z-1.db",
		"ronbox-20250301T100000.000Z-1.db.manifest.json", // of another node
	}
	leave := []string{
		"ronbox-20260301T103000.000Z-6.db",
		"ronbox-20260301T103000.000Z-6.db.manifest.json",
		"ronbox-20260201T070000.000Z-1.db.bad",
	}
	killed := []string{"ronbox-20260301T120000.000000001Z.partial", "ronbox-20260301T090000.000Z-5.db.manifest.json"}
	writeAged(t, dir, append(append(stay, leave...), killed...))
	if err := os.Mkdir(filepath.Join(dir, "ronbox-20250301T110000.000Z-7.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	stay = append(stay, "ronbox-20250301T110000.000Z-7.db")
	other := filepath.Join(dir, "ronbox-20250301T100000.000Z-1.db.manifest.json")
	if err := os.WriteFile(other, []byte(`{"format":1,"node_id":"n2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := time.Now() // another host may be writing it
	if err := os.Chtimes(filepath.Join(dir, "ronbox-20260301T120000.000000002Z.partial"), fresh, fresh); err != nil {
		t.Fatal(err)
	}
	folder, err := lock.ShareFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(want ...string) {
		t.Helper()
		removed, err := Retain(dir, day, RetainPolicy{Hourly: 1})
		for i := range removed {
			removed[i] = filepath.Base(removed[i])
		}
		slices.Sort(removed)
		slices.Sort(want)
		if err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %v, %v; want %v", removed, err, want)
		}
	}
	sweep(leave...)
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	sweep(killed...)
	sweep()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(stay) {
		t.Errorf("left %v, %v", entries, err)
	}
	none := filepath.Join(dir, "none")
	newest, err := Newest(none, "n1", day)
	if removed, rerr := Retain(none, day, DefaultRetain()); errors.Join(err, rerr) != nil || len(removed) != 0 ||
		!newest.IsZero() {
		t.Errorf("no folder: %v, %v, %v", newest, removed, errors.Join(err, rerr))
	}
}

// Only the oldest verified snapshots of the node are removed to make room, down to the least number.
// Other files, and snapshots of another node, stay.
func TestRemoveOldest(t *testing.T) {
	dir := t.TempDir()
	const first, second, third = "ronbox-20260301T090000.000Z-9.db", "ronbox-20260301T100000.000Z-10.db",
		"ronbox-20260301T110000.000Z-11.db"
	stay := []string{
		second, second + manifestSuffix, third, third + manifestSuffix,
		"mine.db", "ronbox-20250301T090000.000Z-1.db", "ronbox-20250301T100000.000Z-1.db.bad",
		"ronbox-20250301T100000.000Z-1.db", "ronbox-20250301T100000.000Z-1.db.manifest.json",
	}
	writeAged(t, dir, append([]string{first, first + manifestSuffix}, stay...))
	other := filepath.Join(dir, "ronbox-20250301T100000.000Z-1.db.manifest.json")
	if err := os.WriteFile(other, []byte(`{"format":1,"node_id":"n2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, first), filepath.Join(dir, first+manifestSuffix)}
	for range 2 {
		if removed, err := RemoveOldest(dir, "n1", 2); err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %v, %v; want %v", removed, err, want)
		}
		want = nil
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(stay) {
		t.Errorf("left %v, %v", entries, err)
	}
}

// What another node has taken, or a wrong clock has dated, puts off no snapshot of this node.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	writeAged(t, dir, []string{
		"ronbox-20260301T110000.000Z-7.db", "ronbox-20260301T110000.000Z-7.db.manifest.json",
		"ronbox-20260301T100000.000Z-6.db", "ronbox-20260301T100000.000Z-6.db.manifest.json",
		"ronbox-20260301T113000.000Z-8.db", // nobody's
		"ronbox-20300101T000000.000Z-9.db", "ronbox-20300101T000000.000Z-9.db.manifest.json",
		"ronbox-20260301T114500.000Z-2.db",
	})
	other := filepath.Join(dir, "ronbox-20260301T114500.000Z-2.db.manifest.json")
	if err := os.WriteFile(other, []byte(`{"format":1,"node_id":"n2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]time.Time{
		"n1": day.Add(-time.Hour), "n2": day.Add(-15 * time.Minute), "n3": {},
	} {
		if got, err := Newest(dir, node, day); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", node, got, err, want)
		}
	}
}

// A snapshot of the store is one that Retain knows, and so is a copy that does not verify.
func TestRetainKnowsSnapshots(t *testing.T) {
	r := open(t, newFile(t))
	dir := t.TempDir()
	m, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readFolder(dir)
	if err != nil || len(s.snapshots) != 1 || len(s.rests) != 1 ||
		!s.snapshots[m.File].Equal(m.At.Truncate(time.Millisecond)) {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.Snapshot(t.Context(), dir, SnapshotOptions{}, func(done, total int64) {
		if done == total/2 { // copied, not yet verified
			partial, _ := filepath.Glob(filepath.Join(dir, "*.partial"))
			overwrite(t, partial[0], 3*PageSize, make([]byte, 64))
		}
	})
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a copy that was damaged: %v", err)
	}
	if s, err = readFolder(dir); err != nil || len(s.snapshots) != 1 || len(s.bad) != 1 || len(s.rests) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	r.stop()
}
