package tables_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// The rows are consistent after any sequence of installs, drops, pins and removals: each URL is
// listed and leads to an object, which counts its URLs, and the change of a command is exact.
func TestRowsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := store.NewScratch(time.Unix(1, 0), tables.Buckets()...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		var has tables.Tally
		url := rapid.SampledFrom(
			[]string{"a", "b", strings.Repeat("c", tables.KeyHead) + "1", strings.Repeat("c", tables.KeyHead) + "2"})
		for range rapid.IntRange(1, 12).Draw(t, "commands") {
			var done tables.Change
			urls := rapid.SliceOfNDistinct(url, 1, 4, func(u string) string { return u }).Draw(t, "urls")
			switch rapid.IntRange(0, 3).Draw(t, "which") {
			case 0:
				keys := make([]b3.Digest, len(urls))
				for i, u := range urls {
					keys[i] = tables.PathKey(u)
				}
				done, err = store.Try(s, tables.Drop{Keys: keys, Lost: rapid.Bool().Draw(t, "lost")})
			case 1:
				c := tables.Keep{
					Do:     rapid.SampledFrom([]asset.Action{asset.Pin, asset.Unpin, asset.Remove}).Draw(t, "action"),
					URLs:   urls,
					Pinned: has.Pinned,
					Pins:   has.Pins,
				}
				c.MaxPinned, c.MaxPins = 50, 3
				var kept tables.Kept
				if kept, err = store.Try(s, c); errors.As(err, new(*asset.PinsError)) {
					err = nil
				} else {
					done = kept.Change
				}
				if next := has.Pins + done.Pins; c.Do == asset.Pin && done.Pins > 0 &&
					(next > 3 || has.Pinned+done.Pinned > 50) {
					t.Fatalf("%d pins of %d bytes", next, has.Pinned+done.Pinned)
				}
			default:
				d := b3.Digest{byte(rapid.IntRange(1, 3).Draw(t, "digest"))}
				grow := max(0, 50-has.Pinned)
				row := tables.Stored{URL: urls[0], Digest: d, Size: 10 * int64(d[0])}
				done, err = store.Try(s, tables.Install{Row: row, Grow: grow})
				if done.Pinned > grow {
					t.Fatalf("a pinned URL grew by %d bytes, %d are left", done.Pinned, grow)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			has.Add(done.Tally)
			agree(t, s.Reader(), has, done.Freed)
		}
	})
}

func agree(t *rapid.T, r store.Reader, has tables.Tally, freed []b3.Digest) {
	leads := map[b3.Digest]int64{}
	if err := tables.Read(r).Fault(); err != nil {
		t.Fatal(err)
	}
	for key, row := range tables.Paths.All(r) {
		leads[row.Digest]++
		has.URLs--
		if b, known := tables.Blobs.Get(r, row.Digest); !known || b.Size != row.Size || key != tables.PathKey(row.URL) {
			t.Fatalf("%s leads to nothing", row.URL)
		}
		if listed, known := tables.Keys.Get(r, tables.KeyOf(row.URL)); !known || listed.Lost {
			t.Fatalf("%s is not listed", row.URL)
		}
	}
	for name, b := range tables.Blobs.All(r) {
		has.Sub(tables.Tally{Bytes: b.Size, Objects: 1})
		if b.Refs != leads[name] {
			t.Fatalf("%s counts %d, %d lead to it", name, b.Refs, leads[name])
		}
	}
	for _, row := range tables.Keys.All(r) {
		has.Sub(row.Pins())
	}
	if has != (tables.Tally{}) {
		t.Fatalf("counted %+v too many", has)
	}
	for _, name := range freed {
		if tables.Blobs.Has(r, name) {
			t.Fatalf("%s was freed and is there", name)
		}
	}
}
