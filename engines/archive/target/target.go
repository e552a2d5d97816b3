package target

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Errors of a target.
var (
	ErrExists      = errors.New("archive: the name exists")
	ErrNotExist    = errors.New("archive: no such object")
	ErrChanged     = errors.New("archive: the target is not the one that was used before")
	ErrUnreachable = errors.New("archive: the target cannot be reached")
	ErrDenied      = errors.New("archive: the target does not permit it")
	ErrFull        = errors.New("archive: the target has no space")
	ErrFormat      = errors.New("archive: the target was made by another release")
)

// Is reports whether err is one of these errors.
func Is(err error) bool {
	for _, of := range []error{ErrExists, ErrNotExist, ErrChanged, ErrUnreachable, ErrDenied, ErrFull, ErrFormat} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Mark is the name of the object that every target has.
const Mark = "ronbox-archive.json"

// markText is its contents.
const markText = "{\"format\":1}\n"

// Item is an object of a target.
type Item struct {
	Name  string
	Bytes int64
	At    time.Time // when it was created, by the clock of the target
}

// Target holds objects by name. Names are slash-separated paths. Its methods may be called by
// several goroutines.
type Target interface {
	// Open returns nil if the target has a mark of this format. With fresh set it makes the mark in
	// a target without any object; several calls may do so at once. It returns ErrChanged if there
	// is no mark.
	Open(ctx context.Context, fresh bool) error
	// Create creates an object with the contents of a file. It returns ErrExists if the name
	// exists. An error of opening the file is returned as it is.
	Create(ctx context.Context, name, file string) error
	// Read returns at most n bytes from an offset, fewer at the end of the object. It returns
	// ErrNotExist if there is no such object.
	Read(ctx context.Context, name string, from, n int64) ([]byte, error)
	// List calls fn with the objects whose names begin with prefix and come after a name, in the
	// order of their names, until fn returns false.
	List(ctx context.Context, prefix, after string, fn func(Item) bool) error
	// Delete deletes an object, if it exists.
	Delete(ctx context.Context, name string) error
	// Sweep removes what interrupted calls of Open, and of Create for objects of a node, left
	// longer ago than a day.
	Sweep(ctx context.Context, node string) error
}

// Parse returns the target that a URL names, which is on server s if it is a bucket. It opens no
// target.
func Parse(text string, s Server) (Target, error) {
	if IsS3(text) {
		return newS3(text, s)
	}
	dir, err := Dir(text)
	if err != nil {
		return nil, err
	}
	return &dirTarget{root: dir}, nil
}

// Dir returns the directory that a URL names. It returns an error if the URL is that of no target.
func Dir(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is not a URL", text)
	case u.Scheme != "file" || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: want file:///absolute/directory or s3://bucket", text)
	case !filepath.IsAbs(u.Path) || filepath.Clean(u.Path) != strings.TrimSuffix(u.Path, "/"):
		return "", fmt.Errorf("%q: want file:///absolute/directory, without dots and double slashes", text)
	}
	return filepath.Clean(u.Path), nil
}
