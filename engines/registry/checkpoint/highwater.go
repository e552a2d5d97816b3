package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ronbox/store"
)

// HighWater is the file that keeps the last checkpoint a node has signed. It lies outside the database, so that an older database shows.
type HighWater struct{ Path string }

// Write replaces the mark. When it returns nil the mark survives a power cut.
func (h HighWater) Write(s Signed) error {
	dir := filepath.Dir(h.Path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = h.replace(dir, s.Note)
	}
	if err == nil {
		err = store.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write the high-water mark: %w", err)
	}
	return nil
}

func (h HighWater) replace(dir string, raw []byte) error {
	f, err := os.CreateTemp(dir, ".highwater-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), h.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Read gives the mark as it was written; a file that is not there is fs.ErrNotExist. Its signature is for the caller to check, with the
// keys that were in force.
func (h HighWater) Read() ([]byte, error) {
	info, err := os.Stat(h.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxNote {
		return nil, fmt.Errorf("high-water mark %s: %w", h.Path, ErrForm)
	}
	return os.ReadFile(h.Path)
}

// Remove takes the mark away; that there is none is no fault.
func (h HighWater) Remove() error {
	if err := os.Remove(h.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the high-water mark: %w", err)
	}
	return nil
}
