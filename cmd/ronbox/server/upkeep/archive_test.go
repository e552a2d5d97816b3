package upkeep

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"ronbox/engines/archive"
	"ronbox/engines/archive/target"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
)

// Each refusal of a base has a problem of its own, and keeps what it says.
func TestArchiveErrors(t *testing.T) {
	file := &fs.PathError{Op: "mkdir", Path: "/d/archive/base", Err: fs.ErrPermission}
	for err, want := range map[error]error{
		archive.ErrBusy: nodehttp.ErrArchiveBusy,
		file:            nodehttp.ErrArchiveLocal,
		fmt.Errorf("%w: %w", store.ErrFull, file):     store.ErrFull,
		fmt.Errorf("%w: the mark", target.ErrChanged): nodehttp.ErrArchiveTarget,
		fmt.Errorf("%w: quota", target.ErrFull):       nodehttp.ErrArchiveTarget,
		store.ErrPoisoned:                             store.ErrPoisoned,
	} {
		got := archiveError(err)
		if !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
		for _, other := range []error{nodehttp.ErrArchiveBusy, nodehttp.ErrArchiveLocal, nodehttp.ErrArchiveTarget} {
			if other != want && errors.Is(got, other) {
				t.Errorf("%v: it is %v, too", err, other)
			}
		}
		if want != nodehttp.ErrArchiveBusy && !errors.Is(got, err) {
			t.Errorf("%v: its cause is lost", got)
		}
	}
}
