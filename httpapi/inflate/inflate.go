package inflate

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var (
	// ErrEncoding is returned if the encoding is not a single gzip or zstd.
	ErrEncoding = errors.New("inflate: unsupported content encoding, use gzip or zstd, once")
	// ErrRatio is returned if the output exceeds the ratio. The client may send the body
	// uncompressed.
	ErrRatio = errors.New("inflate: the body inflates by too much")
	// ErrTooLarge is returned if the output, or the window that it needs, exceeds the cap.
	ErrTooLarge = errors.New("inflate: the inflated body is too large")
	// ErrStream is returned if the stream is damaged, truncated or followed by other bytes.
	ErrStream = errors.New("inflate: damaged stream")
)

// decoder decodes one format. open and read may block only on reads of the body.
type decoder interface {
	open(io.Reader) error
	Read([]byte) (int, error)
	release()
}

// Reader returns a reader that decompresses body. The output is bounded by ratio times the input
// and by abs bytes. Nothing is read before the first Read. The caller must call Close, which
// returns buffers to their pool and leaves body open, and must not call it during a Read.
func Reader(body io.Reader, encoding string, ratio int, abs int64) (io.ReadCloser, error) {
	d, err := newDecoder(encoding)
	if err != nil {
		return nil, err
	}
	return &reader{dec: d, in: counter{r: body}, ratio: int64(ratio), abs: abs}, nil
}

// newDecoder returns the decoder for an encoding name of RFC 9110, in any case.
func newDecoder(encoding string) (decoder, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "gzip", "x-gzip":
		return &gzipDecoder{}, nil
	case "zstd":
		return &zstdDecoder{}, nil
	}
	return nil, ErrEncoding
}

// reader counts the input and output of a decoder.
type reader struct {
	dec   decoder
	in    counter
	out   int64
	ratio int64
	abs   int64
	begun bool
	err   error // the final error
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
		p = p[:left+1] // one byte more shows whether there is more
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

// cause returns an error of the body unchanged, and ErrStream for one of the stream in it.
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

// noEOF replaces io.EOF, so that a truncated stream does not look like the end of the body.
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
		r.in.r = nil // a pooled decoder may still refer to r and must not keep the body alive
	}
	return nil
}

// counter counts the bytes read from a body and keeps the final error.
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

// maxWindow is the largest window of a zstd frame that RFC 8878 requires decoders to support.
const maxWindow = 8 << 20

// Idle decoders. A gzip decoder holds 40 KiB, a zstd decoder its largest window so far.
var (
	gzips = sync.Pool{New: func() any { return new(gzip.Reader) }}
	zstds = sync.Pool{New: func() any { return newZstd() }}
)

type gzipDecoder struct{ *gzip.Reader }

// open reads the header of the first member.
func (d *gzipDecoder) open(r io.Reader) error {
	d.Reader = gzips.Get().(*gzip.Reader)
	return noEOF(d.Reset(r))
}

func (d *gzipDecoder) release() {
	if d.Reader != nil {
		gzips.Put(d.Reader)
		d.Reader = nil
	}
}

type zstdDecoder struct{ *zstd.Decoder }

func newZstd() *zstd.Decoder {
	// Concurrency 1 decodes on the caller's goroutine, as a stream.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeBuffersBelow(0))
	if err != nil {
		panic("inflate: zstd refused fixed options: " + err.Error())
	}
	return d
}

func (d *zstdDecoder) open(r io.Reader) error {
	d.Decoder = zstds.Get().(*zstd.Decoder)
	return d.Reset(r)
}

func (d *zstdDecoder) release() {
	if d.Decoder == nil {
		return
	}
	if d.Reset(nil) == nil { // releases the body
		zstds.Put(d.Decoder)
	} else {
		d.Close()
	}
	d.Decoder = nil
}
