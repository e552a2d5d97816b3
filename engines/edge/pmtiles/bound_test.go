package pmtiles

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"ronbox/engines/edge/packtest"
)

// TestBigDirectories reads tiles through directories at their bound and beyond it. Beyond it a
// verification reports a fault, and a request decodes at most the bound.
func TestBigDirectories(t *testing.T) {
	for _, tt := range []struct {
		n     int
		leaf  bool
		words string // "" if the archive is sound
	}{
		{maxEntries, true, ""}, {maxEntries + 1, true, "1048577 entries, at most 1048576"},
		{8_000_000, true, "more than 16777216 bytes"},
		{maxInRoot, false, ""}, {maxInRoot + 1, false, "65537 entries, at most 65536"},
	} {
		b := packtest.BigDirectory(tt.n, tt.leaf)
		r, err := openBytes(b)
		if !tt.leaf && tt.words != "" {
			if !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%d in the root: %v, want %q", tt.n, err, tt.words)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = r.Tile(t.Context(), 1, 0, 0, anyRoom)
		runtime.ReadMemStats(&after)
		if (err != nil) != (tt.words != "") || err != nil && !errors.Is(err, ErrUnfit) {
			t.Errorf("%d entries: a tile: %v", tt.n, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 160 {
			t.Errorf("%d entries: a tile took %d MiB", tt.n, took)
		}
		if faults, warnings := verified(t, r); (faults != "") != (tt.words != "") ||
			!strings.Contains(faults, tt.words) || warnings != "bounds 1" {
			t.Errorf("%d entries: faults %q, want %q, warnings %s", tt.n, faults, tt.words, warnings)
		}
	}
}

// TestSlots lets one archive ask for all slots: another archive still finds one.
func TestSlots(t *testing.T) {
	//rawchan: as NewSlots creates it on a machine with four cores
	all := Slots{all: make(chan struct{}, 4)}
	greedy, modest := all.Share(), all.Share()
	ended, cancel := context.WithCancelCause(t.Context())
	for range 2 {
		if _, err := greedy.Take(ended); err != nil {
			t.Fatal(err)
		}
	}
	gone := errors.New("gone")
	cancel(gone)
	if _, err := greedy.Take(ended); !errors.Is(err, gone) {
		t.Errorf("err = %v", err)
	}
	release, err := modest.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	if len(all.all) != 2 || len(modest.own) != 0 {
		t.Errorf("%d and %d slots are taken", len(all.all), len(modest.own))
	}
}
