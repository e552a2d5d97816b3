package tokens

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSecretIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.key")
	if _, err := ReadSecret(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret that is not there: %v", err)
	}
	first, err := MakeSecret(path)
	if err != nil || len(first) != secretLen {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	again, err := ReadSecret(path)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("what is read differs from what was made (%v)", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := WritePrivate(path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a secret was replaced: %v", err)
	}
}

// A file has all its data as soon as it has its name, so that a kill leaves no part of a secret that
// the next start would refuse. Nothing else is left in the directory.
func TestPrivateFileIsNeverTorn(t *testing.T) {
	dir, data := t.TempDir(), make([]byte, 16<<20)
	path, done := filepath.Join(dir, "node.key"), make(chan error, 1)
	go func() { done <- WritePrivate(path, data) }()
	ended := false
	info, err := os.Stat(path)
	for errors.Is(err, fs.ErrNotExist) && !ended {
		ended = len(done) > 0
		info, err = os.Stat(path)
	}
	if err != nil || info.Size() != int64(len(data)) {
		t.Errorf("it is seen as %+v, %v", info, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := WritePrivate(path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second time: %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestSecretRefused(t *testing.T) {
	for _, tt := range []struct {
		doc, text string
		mode      os.FileMode
		want      error
	}{
		{"others may read it", "00", 0o644, ErrExposed},
		{"too short", "00ff", 0o600, ErrSecret},
		{"not hex", "zz", 0o600, ErrSecret},
		{"empty", "", 0o600, ErrSecret},
	} {
		path := filepath.Join(t.TempDir(), "node.key")
		if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(path); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, err, tt.want)
		}
	}
}
