package store

import (
	"errors"
	"io/fs"
	"testing"
)

// An error of opening names the file once, whichever layer returns it.
func TestOpenErrorNamesTheFileOnce(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "f", Err: fs.ErrPermission}, "open f: permission denied"},
		{&fs.PathError{Op: "open", Path: "f", Err: fs.ErrNotExist}, "open f: file does not exist"},
		{&fs.PathError{Op: "fdatasync", Path: "f", Err: fs.ErrInvalid}, "open f: fdatasync f: invalid argument"},
		{errors.New("file resize error"), "open f: file resize error"},
	} {
		if got := openError("f", tt.err); got.Error() != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
