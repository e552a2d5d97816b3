package appliance

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// secretLen is the size of the node secret, bytes.
const secretLen = 32

// readSecret reads the node secret; where there is none the error is fs.ErrNotExist. A file that others may read is
// refused: whoever read it can mint tokens.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		if _, link := os.Lstat(path); link == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s is a link to nothing", errSecret, path)
		}
		return nil, fmt.Errorf("node secret: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", errSecret, path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("node secret %s has mode %04o: %w", path, mode, errExposed)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != secretLen {
		return nil, fmt.Errorf("%w: %s is not %d bytes in hex", errSecret, path, secretLen)
	}
	return secret, nil
}

// makeSecret draws a node secret and writes its file.
func makeSecret(path string) ([]byte, error) {
	secret := make([]byte, secretLen)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	return secret, writePrivate(path, []byte(hex.EncodeToString(secret)+"\n"))
}

// writePrivate makes a new 0600 file and syncs it with its directory. It never replaces a file.
func writePrivate(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return syncDir(filepath.Dir(path))
}

// makeDir makes a directory for its owner alone, and what leads to it, and syncs the one it is in: what is synced inside
// would be lost with it. A folder that may be written and not read cannot be synced.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
