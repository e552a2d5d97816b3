package front

import (
	"math"
	"net/http"
	"sync/atomic"
)

// headReader tracks the heads of requests on a connection, because net/http reports neither the
// length of a head nor folded lines: it accepts 4 KiB more than the limit, and repairs a folded
// Content-Length. A read never returns bytes beyond the end of a head, so that the handler, which
// knows the length of the body, can tell where the next head begins. Reads are sequential, and
// request is called before the body is read.
type headReader struct {
	limit int // largest head in bytes

	held   []byte       // bytes read after the end of a head
	rest   []byte       // part of held that was not returned yet
	length int          // of the head so far, or of the bytes after it until the length of the body is known
	line   int          // length of its current line
	last   byte         // the last byte
	body   atomic.Int64 // remaining bytes of the body

	folded atomic.Bool // a head had a line that began with a space
	long   atomic.Bool // a head exceeded the limit
}

// take returns held bytes.
func (h *headReader) take(b []byte) int {
	if len(h.rest) == 0 {
		return 0
	}
	n := h.scan(b[:copy(b, h.rest)])
	h.rest = h.rest[n:]
	return n
}

// give returns the number of bytes that net/http may have, and holds the others.
func (h *headReader) give(b []byte) int {
	n := h.scan(b)
	h.held = append(h.held[:0], b[n:]...)
	h.rest = h.held
	return n
}

// scan examines new bytes and returns the number that net/http may have: those up to the end of a
// head.
func (h *headReader) scan(b []byte) int {
	n := 0
	if body := h.body.Load(); body > 0 {
		n = int(min(body, int64(len(b))))
		h.body.Store(body - int64(n))
	}
	for ; n < len(b); n++ {
		c := b[n]
		h.length++
		if h.length > h.limit {
			h.long.Store(true)
		}
		if h.line == 0 && h.length > 1 && (c == ' ' || c == '\t') {
			h.folded.Store(true)
		}
		if c != '\n' {
			h.line++
			h.last = c
			continue
		}
		blank := h.line == 0 || h.line == 1 && h.last == '\r'
		h.line = 0
		if blank {
			h.length = 0
			return n + 1
		}
	}
	return n
}

// request is called when the head of r has been read. It returns the status, reason and detail of
// its refusal, or 0.
func (h *headReader) request(r *http.Request) (status int, reason, detail string) {
	switch {
	case r.ContentLength > 0: // no read runs; at most one byte of the body was read
		h.body.Store(r.ContentLength - int64(h.length))
		h.length, h.line = 0, 0
	case len(r.TransferEncoding) > 0: // the connection closes after the answer
		h.body.Store(math.MaxInt64)
	}
	folded, long := h.folded.Swap(false), h.long.Swap(false)
	switch {
	case long:
		return http.StatusRequestHeaderFieldsTooLarge, reasonHeader, headerTooLong
	case folded:
		return http.StatusBadRequest, reasonMalformed, "a header is folded over several lines"
	}
	return 0, "", ""
}
