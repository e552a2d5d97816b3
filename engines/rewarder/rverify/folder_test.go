package rverify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Write that fails removes its files. A Write into a folder with files is refused, with what to
// do.
func TestCutWrite(t *testing.T) {
	cut := errors.New("by the test")
	r := Run{rows: func(func(*Row) error) error { return cut }}
	dir := filepath.Join(t.TempDir(), "run")
	if err := r.Write(dir); !errors.Is(err, cut) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, err = %v", left, err)
	}
	full := filepath.Dir(dir)
	if err := r.Write(full); err == nil || !strings.Contains(err.Error(), "name a new folder, or remove this one") {
		t.Errorf("err = %v", err)
	}
}
