package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

var (
	errLength    = errors.New("Content-Length is required")
	errMediaType = errors.New("body must be application/json, not encoded")
	errBodyCap   = errors.New("body is too large")
	errBodySlow  = errors.New("body did not arrive in time")
	errBodyCut   = errors.New("body is cut short")
	errNoBody    = errors.New("this route takes no body")
)

// checkContent refuses what the headers of a body already tell.
func checkContent(s *Server, b *bound, next handler) handler {
	return func(c *call) error {
		if err := checkFraming(c.r, b.route.Body, s.maxBody); err != nil {
			return err
		}
		return next(c)
	}
}

func checkFraming(r *http.Request, want Body, limit int64) error {
	switch {
	case want == NoBody && r.ContentLength != 0:
		return errNoBody
	case want == NoBody || want == OptionJSON && r.ContentLength == 0:
		return nil
	case r.ContentLength == 0 && r.Header.Get("Content-Length") == "" && want == SizedJSON:
		return errLength
	case !isJSON(r):
		return errMediaType
	case r.ContentLength > limit:
		return errBodyCap
	}
	return nil
}

// isJSON tells whether the body is declared as plain JSON.
func isJSON(r *http.Request) bool {
	if r.Header.Get("Content-Encoding") != "" {
		return false
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// readBody takes the body in, at most the cap, within the read timeout that account has set. A chunked body is read to
// the cap too, so that an endless one is told what it is.
func readBody(s *Server, b *bound, next handler) handler {
	return func(c *call) error {
		body, err := readCapped(c.r.Body, c.r.ContentLength, s.maxBody)
		if err != nil {
			c.Header().Set("Connection", "close")
			return err
		}
		if c.r.ContentLength < 0 && b.route.Body == SizedJSON {
			return errLength
		}
		// Without this the connection's own watch for a client that leaves would end the call at the read deadline.
		if err := c.control().SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		c.body = body
		return next(c)
	}
}

// readCapped reads r, of the told length or less than zero, to its end.
func readCapped(r io.Reader, length, limit int64) ([]byte, error) {
	var body []byte
	var err error
	if length >= 0 {
		body = make([]byte, length) // bounded: checkContent refused more than the cap
		_, err = io.ReadFull(r, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(r, limit+1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	case err != nil:
		return nil, errBodyCut
	case int64(len(body)) > limit:
		return nil, errBodyCap
	}
	return body, nil
}
