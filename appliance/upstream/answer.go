package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// method returns the method of a request and its body.
func (r Request) method() (string, io.Reader) {
	switch {
	case r.Post != nil:
		return http.MethodPost, bytes.NewReader(r.Post)
	case r.Head:
		return http.MethodHead, nil
	}
	return http.MethodGet, nil
}

// Answer is a successful answer, one with status Request.Also, or NotModified without a body.
// Reading more than Request.Max bytes of Body returns ErrTooLarge.
type Answer struct {
	Status      int
	NotModified bool
	Header      http.Header
	Length      int64 // of the body; -1: unknown
	Unframed    bool  // the body ends with its connection, so a truncated one cannot be detected
	Body        io.Reader
}

// ETag returns the strong entity tag of the answer (RFC 9110), or "" if it does not have exactly
// one.
func (a *Answer) ETag() string {
	tags := a.Header["Etag"]
	if len(tags) != 1 || len(tags[0]) < 2 || tags[0][0] != '"' || tags[0][len(tags[0])-1] != '"' {
		return ""
	}
	if inner := tags[0][1 : len(tags[0])-1]; slices.ContainsFunc(
		[]byte(inner),
		func(c byte) bool { return c <= ' ' || c == '"' || c == 0x7f },
	) {
		return ""
	}
	return tags[0]
}

// MediaType returns the valid part of the answer's Content-Type, at most 128 bytes.
func (a *Answer) MediaType() string {
	name, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if whole := mime.FormatMediaType(name, params); err == nil && strings.Contains(name, "/") && whole != "" &&
		len(whole) <= 128 {
		return whole
	}
	return "application/octet-stream"
}

// silence ends a try after a time without a byte from its host. A nil silence is a no-op.
type silence struct {
	most  time.Duration
	timer *time.Timer
}

// newSilence starts to wait for a first byte, unless most is 0.
func newSilence(most time.Duration, stop context.CancelCauseFunc) *silence {
	if most == 0 {
		return nil
	}
	late := fmt.Errorf("%w: no byte received for %s", context.DeadlineExceeded, most)
	return &silence{most, time.AfterFunc(most, func() { stop(late) })} //rawchan: it ends a context, and never waits
}

func (s *silence) begin() {
	if s != nil {
		s.timer.Reset(s.most)
	}
}

func (s *silence) end() {
	if s != nil {
		s.timer.Stop()
	}
}

// body reads at most left bytes. It records the error that ended it, and the time its reader spent
// between reads.
type body struct {
	in    io.Reader
	left  int64
	err   error // nil: it ended well, or has not ended
	since time.Time
	own   time.Duration

	silence *silence
}

func (b *body) Read(p []byte) (int, error) {
	b.own += time.Since(b.since)
	defer func() { b.since = time.Now() }()
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	b.silence.begin()
	n, err := b.in.Read(p)
	b.silence.end()
	if b.left -= int64(n); b.left < 0 {
		b.err = ErrTooLarge
		return n - 1, b.err
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
