package tokens

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

var (
	// ErrSecret is returned for a node secret that is not one.
	ErrSecret = errors.New("node secret is not usable")
	// ErrExposed is returned for a node secret that others may read.
	ErrExposed = errors.New("others may read it")
)

// secretLen is the size of the node secret, bytes.
const secretLen = 32

// ReadSecret reads the node secret; where there is none the error is fs.ErrNotExist. A file that others may read is
// refused: its reader can mint tokens.
func ReadSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		if _, link := os.Lstat(path); link == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s is a link to nothing", ErrSecret, path)
		}
		return nil, fmt.Errorf("node secret: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrSecret, path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("node secret %s has mode %04o: %w", path, mode, ErrExposed)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != secretLen {
		return nil, fmt.Errorf("%w: %s is not %d bytes in hex", ErrSecret, path, secretLen)
	}
	return secret, nil
}

// MakeSecret draws a node secret and writes its file.
func MakeSecret(path string) ([]byte, error) {
	secret, err := DrawSecret()
	if err != nil {
		return nil, err
	}
	return secret, WriteSecret(path, secret)
}

// WriteSecret writes the file of a node secret.
func WriteSecret(path string, secret []byte) error {
	return WritePrivate(path, []byte(hex.EncodeToString(secret)+"\n"))
}

// DrawSecret draws a node secret that ends with the process, and every token with it.
func DrawSecret() ([]byte, error) {
	secret := make([]byte, secretLen)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	return secret, nil
}

// WritePrivate makes a new 0600 file and syncs it with its directory. It never replaces a file.
func WritePrivate(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return SyncDir(filepath.Dir(path))
}

// MakeDir makes a directory for its owner alone, with its parents, and syncs its parent: a file synced inside would be lost
// with it. A folder that may be written and not read cannot be synced.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

// SyncDir makes the names in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
