package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func exportOf(t *testing.T, path string) (text string, rows uint64) {
	t.Helper()
	var out bytes.Buffer
	var done, total int64
	rows, err := Export(t.Context(), path, &out, func(d, n int64) { done, total = d, n })
	if err != nil || done != total || total == 0 {
		t.Fatalf("%d of %d, %v", done, total, err)
	}
	return out.String(), rows
}

// An export contains every row once, in byte order of bucket and key. The export of a compacted
// file, which has another layout on the disk, is identical.
func TestExport(t *testing.T) {
	path, _ := holed(t)
	text, rows := exportOf(t, path)
	if _, err := Compact(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	if again, _ := exportOf(t, path); again != text {
		t.Error("a compacted file exports other lines")
	}
	rep, err := Verify(t.Context(), path, nil, nil, nil)
	if err != nil || !rep.OK {
		t.Fatalf("%+v, %v", rep, err)
	}
	lines, all := strings.Split(strings.TrimSuffix(text, "\n"), "\n"), uint64(0)
	for _, n := range rep.Buckets {
		all += n
	}
	if uint64(len(lines)) != all || rows != all {
		t.Errorf("%d lines, %d rows; the file has %d", len(lines), rows, all)
	}
	heads := make([]string, len(lines))
	for i, l := range lines {
		heads[i], _, _ = strings.Cut(l, `,"value"`)
	}
	if !slices.IsSorted(heads) || len(slices.Compact(heads)) != len(lines) {
		t.Error("lines are out of order, or come twice")
	}
}

// errWriter is full after so many bytes.
type errWriter struct{ left int }

func (w *errWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errRefused
	}
	return len(p), nil
}

// An export that is stopped returns the error that stopped it.
func TestExportStopped(t *testing.T) {
	path, _ := holed(t)
	if _, err := Export(t.Context(), path, &errWriter{left: 100}, nil); !errors.Is(err, errRefused) {
		t.Errorf("a writer that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Export(ctx, path, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	r := open(t, path)
	if _, err := Export(t.Context(), path, io.Discard, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a node: %v", err)
	}
	r.stop()
}

// SetConfig applies the keys that can change while the store is open. The other keys keep their
// values.
func TestSetConfig(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	c := DefaultConfig()
	c.MaxBytes, c.LockTimeout, c.AllowNetwork, c.GroupMax, c.MinFree = minBytes, 1, true, 2, 1<<40
	r.SetConfig(c)
	got := r.config()
	if got.MaxBytes != DefaultConfig().MaxBytes || got.LockTimeout != 0 || got.AllowNetwork || got.GroupMax != 2 {
		t.Errorf("%+v", got)
	}
	var g group
	g.open(r.Store)
	if err := g.look(); err != nil {
		t.Fatal(err)
	}
	if p := r.room.last.Load(); p.minFree != 1<<40 || p.reserve() != max((p.disk+p.own)/8, p.growth()) {
		t.Errorf("%+v keeps %d bytes free", p, p.reserve())
	}
	r.stop()
}
