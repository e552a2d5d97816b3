package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is filled lies behind the last page and within the file, whose length stays; a group that grows it by much is not followed.
func TestAhead(t *testing.T) {
	const size = 3 * aheadStep
	for _, tt := range []struct {
		name     string
		sizes    []int64 // where the pages end, group by group
		from, to int64   // what is zero then
	}{
		{"nothing grows", []int64{8 << 10, 8 << 10}, 0, 0},
		{"a page more", []int64{12 << 10}, 12 << 10, 12<<10 + aheadStep},
		{"there is enough", []int64{12 << 10, 16 << 10, 24 << 10}, 12 << 10, 12<<10 + aheadStep},
		{"the next step", []int64{12 << 10, 12<<10 + aheadStep - aheadLow, 16<<10 + aheadStep - aheadLow}, 12 << 10, 12<<10 + 2*aheadStep},
		{"a large group", []int64{8<<10 + aheadLow + PageSize}, 0, 0},
		{"after a large group", []int64{aheadStep, aheadStep + PageSize}, aheadStep + PageSize, 2*aheadStep + PageSize},
		{"past what was filled", []int64{12 << 10, 2 * aheadStep}, 12 << 10, 12<<10 + aheadStep},
		{"the end of the file", []int64{size - 3*PageSize, size - 2*PageSize}, size - 2*PageSize, size},
		{"a full file", []int64{size - PageSize, size}, 0, 0},
	} {
		f := marked(t, size)
		a := ahead{file: f, size: 8 << 10, end: 8 << 10}
		for _, s := range tt.sizes {
			a.step(s)
		}
		raw, err := os.ReadFile(f.Name())
		if err != nil || len(raw) != size {
			t.Fatal(len(raw), err)
		}
		from, zeros := int64(max(bytes.IndexByte(raw, 0), 0)), int64(bytes.Count(raw, []byte{0}))
		if from != tt.from || from+zeros != tt.to {
			t.Errorf("%s: zeros from %d to %d, want %d to %d", tt.name, from, from+zeros, tt.from, tt.to)
		}
	}
}

// marked is a file without a zero byte.
func marked(t *testing.T, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
