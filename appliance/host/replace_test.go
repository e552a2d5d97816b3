package host

import (
	"errors"
	"io"
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
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, err = %v", st.Mode(), err)
	}
	if err := ReplaceFile(filepath.Join(path, "below"), 0o600, text("x")); err == nil {
		t.Error("a file below a file was written")
	}
}
