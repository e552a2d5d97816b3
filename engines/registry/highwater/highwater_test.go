package highwater_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/highwater"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMark(t *testing.T) {
	h := highwater.Mark{Path: filepath.Join(t.TempDir(), "registry", "highwater.note")}
	if _, err := h.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no mark: %v", err)
	}
	for _, text := range []string{"one", "a longer one", "two"} {
		note := []byte(text)
		if err := h.Write(checkpoint.Signed{Note: note}); err != nil {
			t.Fatal(err)
		}
		if raw, err := h.Read(); err != nil || !bytes.Equal(raw, note) {
			t.Errorf("read back: %q, %v", raw, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(h.Path))
	if err != nil || len(left) != 1 {
		t.Errorf("%d files beside the mark, %v", len(left), err)
	}
	if err := os.WriteFile(h.Path, make([]byte, checkpoint.MaxNote+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Read(); !errors.Is(err, checkpoint.ErrForm) {
		t.Errorf("a file that is too long: %v", err)
	}
	if err := errors.Join(h.Remove(), h.Remove()); err != nil {
		t.Error(err)
	}
}
