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
