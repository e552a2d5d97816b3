package inflate

import (
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest window of a zstd frame, what every decoder must support by RFC 8878.
const maxWindow = 8 << 20

// Decoders between two bodies. A gzip one holds 40 KiB, a zstd one what its largest window took.
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
	// Concurrency 1 decodes in the caller's goroutine; no size of body is decoded at once.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecodeBuffersBelow(0))
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
	if d.Reset(nil) == nil { // lets go of the body
		zstds.Put(d.Decoder)
	} else {
		d.Close()
	}
	d.Decoder = nil
}
