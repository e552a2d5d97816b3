package upstream

import (
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Answer is a success, what Request.Also names, or NotModified without a body. Body ends with ErrTooLarge beyond Request.Max.
type Answer struct {
	Status      int
	NotModified bool
	Header      http.Header
	Length      int64 // of the body; -1: not known
	Unframed    bool  // the body ends with its connection, so that one that was cut looks whole
	Body        io.Reader
}

// ETag is the one strong entity tag of the answer, as RFC 9110 has it, "" if it has none.
func (a *Answer) ETag() string {
	tags := a.Header["Etag"]
	if len(tags) != 1 || len(tags[0]) < 2 || tags[0][0] != '"' || tags[0][len(tags[0])-1] != '"' {
		return ""
	}
	if inner := tags[0][1 : len(tags[0])-1]; slices.ContainsFunc([]byte(inner), func(c byte) bool { return c <= ' ' || c == '"' || c == 0x7f }) {
		return ""
	}
	return tags[0]
}

// MediaType is the sound part of the answer's Content-Type, at most 128 bytes.
func (a *Answer) MediaType() string {
	name, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if whole := mime.FormatMediaType(name, params); err == nil && strings.Contains(name, "/") && whole != "" && len(whole) <= 128 {
		return whole
	}
	return "application/octet-stream"
}

// body reads at most left bytes, and keeps the error that ended it, and how long its reader was busy between reads.
type body struct {
	in    io.Reader
	left  int64
	err   error // nil: it ended well, or has not ended
	since time.Time
	own   time.Duration
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
	n, err := b.in.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.err = ErrTooLarge
		return n - 1, b.err
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
