package front

import (
	"math"
	"net/http"
	"sync/atomic"
)

// headReader follows the bytes of a connection from the head of one request to the next, since net/http shows neither how long a head was
// nor that lines of it were folded: it takes 4 KiB more than the limit, and mends a folded Content-Length. No read goes on beyond the end
// of a head, so that the handler, which knows the length of the body, tells where the next head begins. Reads follow one another; request
// is called before the body is read.
type headReader struct {
	limit int // bytes of a head

	held   []byte       // read behind the end of a head
	rest   []byte       // of held, not given to net/http yet
	length int          // of the head so far, or of what came behind it while nothing is known of a body
	line   int          // bytes of its current line
	last   byte         // of its bytes
	body   atomic.Int64 // bytes of the body to come

	folded atomic.Bool // a line of a head that has been read began with a space
	long   atomic.Bool // a head was longer than the limit
}

// take gives net/http what was held back.
func (h *headReader) take(b []byte) int {
	if len(h.rest) == 0 {
		return 0
	}
	n := h.scan(b[:copy(b, h.rest)])
	h.rest = h.rest[n:]
	return n
}

// give returns how many of the bytes that have come net/http may have, and holds the others back.
func (h *headReader) give(b []byte) int {
	n := h.scan(b)
	h.held = append(h.held[:0], b[n:]...)
	h.rest = h.held
	return n
}

// scan looks at bytes that have come, and returns how many of them net/http may have: those up to the end of a head.
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

// request is called for the request whose head has been read. It returns the status and the words of its refusal, 0 for none.
func (h *headReader) request(r *http.Request) (status int, reason, detail string) {
	switch {
	case r.ContentLength > 0: // nothing reads meanwhile; one byte of the body may have come
		h.body.Store(r.ContentLength - int64(h.length))
		h.length, h.line = 0, 0
	case len(r.TransferEncoding) > 0: // the connection ends with its answer
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
