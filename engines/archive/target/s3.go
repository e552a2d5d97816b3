package target

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"ronbox/appliance/flow"
)

const (
	listPage = 1000            // names in an answer
	answerIn = time.Minute     // for a small answer
	slowest  = int64(16 << 10) // bytes a second of a larger one
	tries    = 20              // of a call that changes nothing, or that may be repeated
)

// s3Target is a bucket of an S3 server, or the part of it below a prefix.
type s3Target struct {
	server *minio.Core
	bucket string
	prefix string // "", or ends in a slash
	again  flow.Retrier
	// answer of exclusive, once it is known: nil before
	refuses atomic.Pointer[bool]
}

// pauseAfter returns the time to wait after failure n.
func pauseAfter(n int) time.Duration { return min(100*time.Millisecond<<min(n, 5), time.Second) }

// Open implements Target. Credentials that may not read are enough: then the mark is made, or the
// server refuses to, because there is one.
func (s *s3Target) Open(ctx context.Context, fresh bool) error {
	text, err := s.Read(ctx, Mark, 0, 100)
	switch {
	case err == nil && string(text) == markText:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s holds %q", ErrFormat, s.where(Mark), text)
	case errors.Is(err, ErrNotExist):
		err = s.empty(ctx)
		switch {
		case fresh && errors.Is(err, ErrChanged):
			return s.Open(ctx, false) // another call may have made the mark since, and an object
		case err == nil && !fresh:
			return s.changed()
		case err != nil:
			return err
		}
	case !errors.Is(err, ErrDenied):
		return err
	}
	_, err = s.mark(ctx)
	return err
}

// mark creates the mark, or writes it over itself. It reports true if the server refuses to.
func (s *s3Target) mark(ctx context.Context) (refused bool, err error) {
	err = s.put(ctx, Mark, strings.NewReader(markText), true)
	switch {
	case errors.Is(err, ErrExists):
		return true, nil
	case statusOf(err) == http.StatusNotImplemented: // it does not know If-None-Match
		err = s.put(ctx, Mark, strings.NewReader(markText), false)
	}
	return false, err
}

// empty returns ErrChanged if the target has an object other than the mark, which another call may
// have made since.
func (s *s3Target) empty(ctx context.Context) error {
	found := false
	look := func(i Item) bool {
		found = i.Name != Mark
		return !found
	}
	if err := s.List(ctx, "", "", look); err != nil {
		return err
	}
	if found {
		return s.changed()
	}
	return nil
}

func (s *s3Target) changed() error {
	return fmt.Errorf("%w: %s is not there; a new target must be an empty bucket, or an unused prefix", ErrChanged,
		s.where(Mark))
}

// Create implements Target. It is one request, which creates the object or leaves nothing.
func (s *s3Target) Create(ctx context.Context, name, file string) (err error) {
	exclusive, err := s.exclusive(ctx)
	if err != nil {
		return err
	}
	if !exclusive {
		if err := s.free(ctx, name); err != nil {
			return err
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return s.put(ctx, name, f, exclusive)
}

// free returns ErrExists if the name exists.
func (s *s3Target) free(ctx context.Context, name string) error {
	_, err := s.Read(ctx, name, 0, 1)
	if err == nil {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// exclusive reports whether the server refuses to write over a name. It writes the mark over itself
// to see it, so the target must have been opened.
func (s *s3Target) exclusive(ctx context.Context) (bool, error) {
	if known := s.refuses.Load(); known != nil {
		return *known, nil
	}
	refuses, err := s.mark(ctx)
	if err == nil {
		s.refuses.Store(&refuses)
	}
	return refuses, err
}

// Exclusive reports whether the target itself refuses to write over a name. If it does not, Create
// asks for the name first, and of two writers at the same moment the later one wins. The target
// must have been opened.
func Exclusive(ctx context.Context, t Target) (bool, error) {
	if s, ok := t.(*s3Target); ok {
		return s.exclusive(ctx)
	}
	return true, nil
}

// put creates an object, with exclusive only under a new name. It makes one try.
func (s *s3Target) put(ctx context.Context, name string, from io.ReadSeeker, exclusive bool) error {
	sum, check := md5.New(), sha256.New()
	size, err := io.Copy(io.MultiWriter(sum, check), from)
	if err == nil {
		_, err = from.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	opts := minio.PutObjectOptions{DisableContentSha256: true} // it is not sent in signed chunks
	if exclusive {
		opts.SetMatchETagExcept("*")
	}
	body := struct{ io.ReadSeeker }{from} // without Close
	_, err = s.server.PutObject(ctx, s.bucket, s.prefix+name, body, size,
		base64.StdEncoding.EncodeToString(sum.Sum(nil)), hex.EncodeToString(check.Sum(nil)), opts)
	err = s.failed(ctx, name, err)
	if statusOf(err) == http.StatusConflict { // with a call for the same name, which may have failed
		if taken := s.free(ctx, name); taken != nil {
			return taken
		}
	}
	return err
}

// Read implements Target.
func (s *s3Target) Read(ctx context.Context, name string, from, n int64) (raw []byte, err error) {
	if n <= 0 {
		return nil, nil
	}
	err = s.again.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerIn+time.Duration(n/slowest)*time.Second)
		defer cancel()
		raw, err = s.read(ctx, name, from, n)
		return s.failed(ctx, name, err)
	})
	return raw, err
}

// read makes one try.
func (s *s3Target) read(ctx context.Context, name string, from, n int64) (raw []byte, err error) {
	opts := minio.GetObjectOptions{}
	if err := opts.SetRange(from, from+n-1); err != nil {
		return nil, err
	}
	body, _, head, err := s.server.GetObject(ctx, s.bucket, s.prefix+name, opts)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if head.Get("Content-Range") == "" { // the whole object
		if _, err := io.CopyN(io.Discard, body, from); err != nil && err != io.EOF {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(body, n))
}

// List implements Target. An object that was created or deleted a short time ago may be missing or
// listed, depending on the server.
func (s *s3Target) List(ctx context.Context, prefix, after string, fn func(Item) bool) error {
	for last := false; !last; {
		var items []Item
		err := s.again.Do(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, answerIn)
			defer cancel()
			var err error
			items, last, err = s.page(ctx, prefix, after, items)
			if n := len(items); n > 0 {
				after = items[n-1].Name // a next try goes on there
			}
			return s.failed(ctx, prefix, err)
		})
		if err != nil {
			return err
		}
		for _, i := range items {
			if i.Name != "" && !strings.HasSuffix(i.Name, "/") && !fn(i) { // else it stands for a folder
				return nil
			}
		}
	}
	return nil
}

// page appends the names after one, also with an error. It reports true for the last page.
func (s *s3Target) page(ctx context.Context, prefix, after string, items []Item) (all []Item, last bool, err error) {
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: listPage}
	if after != "" {
		opts.StartAfter = s.prefix + after
	}
	for o := range s.server.ListObjectsIter(ctx, s.bucket, opts) {
		name, ours := strings.CutPrefix(o.Key, s.prefix)
		switch {
		case o.Err != nil:
			return items, false, o.Err
		case !ours || !strings.HasPrefix(name, prefix) || after != "" && name <= after:
			return items, false, fmt.Errorf("%w: the server does not list in order: %q after %q", ErrDenied, o.Key,
				s.prefix+after)
		}
		after = name
		items = append(items, Item{Name: name, Bytes: o.Size, At: o.LastModified})
		if len(items) >= listPage {
			return items, false, nil
		}
	}
	return items, true, ctx.Err()
}

// Delete implements Target.
func (s *s3Target) Delete(ctx context.Context, name string) error {
	err := s.again.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		err := s.server.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
		return s.failed(ctx, name, err)
	})
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// Sweep implements Target. An interrupted request leaves nothing.
func (s *s3Target) Sweep(context.Context, string) error { return nil }

func (s *s3Target) where(name string) string { return "s3://" + s.bucket + "/" + s.prefix + name }
