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

	"ronbox/appliance/host"
)

var (
	// ErrSecret is returned for an invalid node secret.
	ErrSecret = errors.New("node secret is not usable")
	// ErrExposed is returned for a node secret that other users may read.
	ErrExposed = errors.New("others may read it")
)

// secretLen is the size of the node secret, bytes.
const secretLen = 32

// ReadSecret reads the node secret. It returns fs.ErrNotExist if the file does not exist, and
// ErrExposed if other users may read the file, because a reader can mint tokens.
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

// MakeSecret creates a node secret and writes its file.
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

// DrawSecret returns a new node secret. If it is not written, it and all its tokens end with the
// process.
func DrawSecret() ([]byte, error) {
	secret := make([]byte, secretLen)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	return secret, nil
}

// WritePrivate creates a file with mode 0600 and syncs it and its directory. It never replaces a
// file. After a kill or a power cut the file is complete or does not exist.
func WritePrivate(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".ronbox-*") // mode 0600; a start removes one that was left
	if err != nil {
		return err
	}
	if err := writeOut(f, data); err != nil {
		return err
	}
	err = host.PlaceFile(f.Name(), path)
	if err != nil {
		_ = os.Remove(f.Name()) // unless it has its new name already
	}
	return err
}

// writeOut writes, syncs and closes a new file. If that fails, it removes the file.
func writeOut(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", f.Name(), err), os.Remove(f.Name()))
	}
	return nil
}

// MakeDir creates a directory (mode 0700) and its parents, and syncs its parent, without which a
// file synced inside could be lost. A parent without read permission cannot be synced.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

// SyncDir syncs dir, which makes its names durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
