package httpapi

import (
	"errors"
	"net/http"
)

// Bounds of what stands before a body. The whole of it is bounded by max_header at the connection.
const (
	maxTarget  = 8 << 10 // bytes of path and query: far beyond any route of ours
	maxHeaders = 64      // lines: browsers and proxies send some twenty
)

var (
	errTarget  = errors.New("the request target is longer than 8 KiB")
	errHeaders = errors.New("more than 64 header lines")
)

// checkShape refuses requests that no client of ours sends.
func checkShape(_ *Server, _ *bound, next handler) handler {
	return func(c *call) error {
		switch {
		case len(c.r.RequestURI) > maxTarget:
			return errTarget
		case headerLines(c.r.Header) > maxHeaders:
			return errHeaders
		}
		return next(c)
	}
}

func headerLines(h http.Header) (n int) {
	for _, lines := range h {
		n += len(lines)
	}
	return n
}
