package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A file is replaced completely or not at all, also after an attempt that was interrupted.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s)
			return err
		}
	}
	full := errors.New("no space left")
	for _, tt := range []struct {
		write func(io.Writer) error
		err   error
		want  string
	}{
		{text("first"), nil, "first"},
		{func(w io.Writer) error { return errors.Join(text("sec")(w), full) }, full, "first"},
		{text("third"), nil, "third"},
	} {
		if err := ReplaceFile(path, 0o600, tt.write); !errors.Is(err, tt.err) {
			t.Errorf("want %q: err = %v, want %v", tt.want, err, tt.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != tt.want {
			t.Errorf("the file has %q, want %q, err = %v", got, tt.want, err)
		}
		if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
			t.Errorf("%v is left, err = %v", all, err) // an unfinished file may be what fills the disk
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, err = %v", st.Mode(), err)
	}
	if err := ReplaceFile(filepath.Join(path, "below"), 0o600, text("x")); err == nil {
		t.Error("a file below a file was written")
	}
}

// PlaceFile never goes over a file.
func TestPlaceFile(t *testing.T) {
	dir := t.TempDir()
	temp, path := filepath.Join(dir, "new.tmp"), filepath.Join(dir, "new")
	for _, content := range []string{"first", "second"} {
		if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := PlaceFile(temp, path)
		if errors.Is(err, fs.ErrExist) != (content == "second") {
			t.Errorf("%s: %v", content, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "first" {
			t.Errorf("the file has %q, %v", b, err)
		}
		if _, err := os.Stat(temp); (err == nil) != (content == "second") {
			t.Errorf("%s: the other name: %v", content, err)
		}
	}
}

func TestIsContents(t *testing.T) {
	for name, want := range map[string]bool{
		"lost+found":     false,
		"lost+found.old": true,
		".ronbox-sync-1": false,
		".ronbox":        true,
		"ronbox.db":      true,
	} {
		if IsContents(name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
}
