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

// readSecret reads the node secret. A file that others may read is refused: whoever read it can mint tokens.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("node secret %s has mode %04o, must be 0600: %w", path, mode, fs.ErrPermission)
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

// loadSecret reads the node secret, or makes one where there is none: then every older token is void.
func loadSecret(path string) (secret []byte, made bool, err error) {
	secret, err = readSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, false, err
	}
	secret, err = makeSecret(path)
	return secret, true, err
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

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
