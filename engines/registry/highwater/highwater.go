package highwater

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ronbox/appliance/host"
	"ronbox/engines/registry/checkpoint"
)

// Mark is the file with the last checkpoint that a node has signed.
type Mark struct{ Path string }

// Write replaces the mark. Once it returns nil, the mark survives a power cut.
func (h Mark) Write(s checkpoint.Signed) error {
	err := os.MkdirAll(filepath.Dir(h.Path), 0o700)
	if err == nil {
		err = host.ReplaceFile(h.Path, 0o600, func(w io.Writer) error { _, err := w.Write(s.Note); return err })
	}
	if err != nil {
		return fmt.Errorf("write the high-water mark: %w", err)
	}
	return nil
}

// Read returns the mark as it was written, or fs.ErrNotExist. The caller checks its signature with
// the keys that were in force.
func (h Mark) Read() ([]byte, error) {
	info, err := os.Stat(h.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > checkpoint.MaxNote {
		return nil, fmt.Errorf("high-water mark %s: %w", h.Path, checkpoint.ErrForm)
	}
	return os.ReadFile(h.Path)
}

// Remove removes the mark. A missing mark is not an error.
func (h Mark) Remove() error {
	if err := os.Remove(h.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the high-water mark: %w", err)
	}
	return nil
}
