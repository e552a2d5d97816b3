package tile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// Coding is a content coding, named as in Content-Encoding.
type Coding string

// The codings in which a part of a pack may be stored. Deflate is the zlib format, as in RFC 9110.
const (
	None    Coding = ""
	Gzip    Coding = "gzip"
	Zstd    Coding = "zstd"
	Deflate Coding = "deflate"
	Brotli  Coding = "br"
	Unknown Coding = "unknown"
)

// Errors of Decode.
var (
	ErrUndecodable = errors.New("the bytes do not decode")
	ErrTooLong     = errors.New("the decoded bytes are too long")
)

// zstdWindow bounds the memory of a zstd decoder, in bytes.
const zstdWindow = 16 << 20

// CodingOf returns the coding of the bytes of a tile of format f, of which the pack declares a
// coding. A zlib stream is recognised in vector tiles of Mapbox alone, whose plain bytes never
// begin like one. Brotli has no mark of its own, so the declaration decides.
func CodingOf(b []byte, declared Coding, f Format) Coding {
	switch {
	case len(b) > 3 && bytes.HasPrefix(b, []byte{0x1f, 0x8b, 8}) && b[3] < 0x20:
		return Gzip
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return Zstd
	case declared == Brotli:
		return Brotli
	case f == MVT && len(b) > 1 && b[0]&0x8f == 8 && (int(b[0])<<8|int(b[1]))%31 == 0:
		return Deflate
	}
	return None
}

// Decodes reports whether Decode supports c.
func (c Coding) Decodes() bool { return c != Brotli && c != Unknown }

// Decode decompresses b to at most limit bytes. It returns ErrTooLong if there are more, and
// ErrUndecodable if b is not in the coding or there is no decoder.
func (c Coding) Decode(b []byte, limit int) (out []byte, err error) {
	var z io.Reader = bytes.NewReader(b)
	switch c {
	case None:
	case Gzip:
		z, err = gzip.NewReader(z)
	case Deflate:
		z, err = zlib.NewReader(z)
	case Zstd: // with a concurrency of one the decoder starts no goroutine and needs no Close
		z, err = zstd.NewReader(z, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(zstdWindow))
	default:
		err = errors.New("there is no decoder")
	}
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	}
	switch {
	case len(out) > limit:
		return nil, fmt.Errorf("decoding of %q: more than %d bytes: %w", c, limit, ErrTooLong)
	case err != nil:
		return nil, fmt.Errorf("decoding of %q: %w: %v", c, ErrUndecodable, err)
	}
	return out, nil
}
