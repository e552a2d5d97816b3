package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"ronbox/httpapi/inflate"
)

var (
	errLength    = errors.New("Content-Length is required")
	errMediaType = errors.New("body must be application/json in UTF-8; that of /v1/batch may be application/cbor")
	errEncoding  = errors.New("body may be encoded with gzip or zstd only")
	errNested    = errors.New("body may be encoded once only")
	errBodyCap   = errors.New("body is too large: it may be as long as server.max_body_bytes, or the token, allows; nothing was done")
	errBodySlow  = errors.New("body did not arrive in time")
	errBodyCut   = errors.New("body is cut short")
	errNoBody    = errors.New("this route takes no body")
)

// checkContent refuses what the headers of a body already tell.
func checkContent(_ *Server, b *bound, next handler) handler {
	return func(c *call) error {
		if err := checkFraming(c.r, b.route.Body, c.maxBody()); err != nil {
			return err
		}
		return next(c)
	}
}

// maxBody is the node's cap, or what the caller's token allows if that is less.
func (c *call) maxBody() int64 {
	if most, limited := c.actor.Grant.MaxBytes(); limited {
		return min(most, c.live.maxBody)
	}
	return c.live.maxBody
}

func checkFraming(r *http.Request, want Body, limit int64) error {
	switch {
	case want == NoBody && r.ContentLength != 0:
		return errNoBody
	case want == NoBody || want == OptionJSON && r.ContentLength == 0:
		return nil
	case r.ContentLength == 0 && r.Header.Get("Content-Length") == "" && want == SizedJSON:
		return errLength
	case want == EitherBody && mediaType(r) == typeCBOR:
	case !isJSON(r):
		return errMediaType
	}
	if r.ContentLength > limit {
		return errBodyCap
	}
	return checkEncoding(r)
}

// isJSON tells whether the body is declared as JSON.
func isJSON(r *http.Request) bool {
	kind, params := declared(r)
	charset, ok := params["charset"]
	return kind == typeJSON && (!ok || strings.EqualFold(charset, "utf-8"))
}

// declared is what the body is said to be, "" for what cannot be read. Most callers say no more than application/json.
func declared(r *http.Request) (kind string, params map[string]string) {
	v := r.Header.Get("Content-Type")
	if v == typeJSON {
		return v, nil
	}
	kind, params, err := mime.ParseMediaType(v)
	if err != nil {
		return "", nil
	}
	return kind, params
}

// mediaType is what the body is declared as, without parameters.
func mediaType(r *http.Request) string {
	kind, _ := declared(r)
	return kind
}

// checkEncoding lets through what expand can undo.
func checkEncoding(r *http.Request) error {
	lines := r.Header["Content-Encoding"]
	switch {
	case len(lines) == 0:
		return nil
	case len(lines) > 1 || strings.Contains(lines[0], ","):
		return errNested
	}
	probe, err := inflate.Reader(nil, lines[0], 1, 1)
	if err != nil {
		return errEncoding
	}
	return probe.Close()
}

// readBody takes the body in, at most the cap as it is sent and, if it is encoded, as it is after that. The read timeout
// that account has set is for all of it: one that began anew with each byte would let a drip hold its place for days. net/http
// lifts it at the end of the body, when it begins to watch for a client that leaves.
func readBody(s *Server, b *bound, next handler) handler {
	return func(c *call) error {
		body, err := c.take()
		if encoding := c.r.Header.Get("Content-Encoding"); err == nil && encoding != "" {
			body, err = s.expand(c, body, encoding)
		}
		if err != nil {
			c.Header().Set("Connection", "close")
			return err
		}
		if c.r.ContentLength < 0 && b.route.Body == SizedJSON {
			return errLength
		}
		c.body = body
		return next(c)
	}
}

// take reads the whole body as it is sent. A chunked one is read to the cap too, so that an endless one is told what it is.
func (c *call) take() ([]byte, error) {
	sent := &wireBody{r: c.r.Body, left: c.maxBody()}
	if c.r.ContentLength < 0 {
		return io.ReadAll(sent)
	}
	body := make([]byte, c.r.ContentLength) // bounded: checkContent refused more than the cap
	_, err := io.ReadFull(sent, body)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errBodyCut
	}
	return body, err
}

// expand undoes the encoding of a body that is here, counting as it goes. One a processor does so at a time: each may take
// a window of 8 MiB, and none waits for its client meanwhile.
func (s *Server) expand(c *call, sent []byte, encoding string) ([]byte, error) {
	select {
	case s.expanding <- struct{}{}:
		defer func() { <-s.expanding }()
	case <-c.context().Done():
		return nil, context.Cause(c.context())
	}
	r, err := inflate.Reader(bytes.NewReader(sent), encoding, c.live.ratio, c.live.maxInflated)
	if err != nil {
		return nil, errEncoding
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}

// wireBody is a body as it is sent. It gives at most left bytes, and says in our words why it ends early.
type wireBody struct {
	r    io.Reader
	left int64
}

func (b *wireBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one byte more tells that there is more
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		return 0, errBodyCap
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errBodySlow
	}
	return n, errBodyCut
}
