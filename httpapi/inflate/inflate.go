package inflate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

var (
	// ErrEncoding says that the encoding is not one layer of gzip or zstd.
	ErrEncoding = errors.New("inflate: unsupported content encoding, use gzip or zstd, once")
	// ErrRatio says that the body grows by more than the ratio allows. Send it uncompressed.
	ErrRatio = errors.New("inflate: the body inflates by too much")
	// ErrTooLarge says that the body, or the window it asks for, is larger than the cap.
	ErrTooLarge = errors.New("inflate: the inflated body is too large")
	// ErrStream says that the body is not what its encoding names: damaged, cut short or followed by other bytes.
	ErrStream = errors.New("inflate: damaged stream")
)

// decoder is one compressed format. Neither open nor read may wait for anything but the body.
type decoder interface {
	open(io.Reader) error
	Read([]byte) (int, error)
	release()
}

// Reader inflates body, which is encoded as encoding names, up to ratio times its own size and up to abs bytes. It reads nothing before
// the first Read. Close gives its buffers back and leaves body open; it must be called, and never beside a Read.
func Reader(body io.Reader, encoding string, ratio int, abs int64) (io.ReadCloser, error) {
	d, err := newDecoder(encoding)
	if err != nil {
		return nil, err
	}
	return &reader{dec: d, in: counter{r: body}, ratio: int64(ratio), abs: abs}, nil
}

// newDecoder knows the names of RFC 9110, in any case.
func newDecoder(encoding string) (decoder, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "gzip", "x-gzip":
		return &gzipDecoder{}, nil
	case "zstd":
		return &zstdDecoder{}, nil
	}
	return nil, ErrEncoding
}

// reader counts both sides of a decoder.
type reader struct {
	dec   decoder
	in    counter
	out   int64
	ratio int64
	abs   int64
	begun bool
	err   error // what ended it
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !r.begun {
		r.begun = true
		if err := r.dec.open(&r.in); err != nil {
			r.err = r.cause(err)
			return 0, r.err
		}
	}
	if left := r.abs - r.out; int64(len(p)) > left {
		p = p[:left+1] // one byte more tells that there is more
	}
	n, err := r.dec.Read(p)
	r.out += int64(n)
	switch {
	case r.out > r.abs:
		r.err = ErrTooLarge
	case r.out > r.ratio*r.in.n:
		r.err = ErrRatio
	case err != nil:
		r.err = r.cause(err)
		return n, r.err
	default:
		return n, nil
	}
	return 0, r.err
}

// cause tells the fault of the body from that of the stream in it.
func (r *reader) cause(err error) error {
	switch {
	case r.in.err != nil && r.in.err != io.EOF:
		return r.in.err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err == io.EOF && r.in.n > 0:
		return io.EOF
	}
	return fmt.Errorf("%w: %w", ErrStream, noEOF(err))
}

// noEOF keeps the end of a stream that was cut short from being taken for the end of the body.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *reader) Close() error {
	if r.dec != nil {
		r.dec.release()
		r.dec, r.err = nil, io.ErrClosedPipe
		r.in.r = nil // a decoder in the pool may still know r, and must not keep the body
	}
	return nil
}

// counter counts what is read from a body, and keeps how it ended.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.err = err
	return n, err
}
