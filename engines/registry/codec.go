package registry

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// Codecs of a stored payload, its first byte. Bytes are compressed before they are submitted, because a compressor's
// output is not the same in every release and a command must replay to the same bytes.
//
// A zstd frame stands behind its own BLAKE3: some bits of a frame's header change nothing a decoder gives back, and no
// bit of the log may flip unseen.
const (
	codecRaw  = 0
	codecZstd = 1
)

// minCompress: below it zstd saves less than its header costs.
const minCompress = 512

// maxPayload bounds what a stored payload may inflate to.
const maxPayload = 8 << 20

var errPacked = errors.New("packed bytes are damaged")

// codec packs canonical payloads for storage and unpacks them. Its methods may be called from several goroutines.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err)) // constant options: a bug
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPayload))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err))
	}
	return codec{enc: enc, dec: dec}
}

func (c codec) pack(canonical []byte) []byte {
	if len(canonical) >= minCompress {
		z := c.enc.EncodeAll(canonical, make([]byte, 1+b3.Size, 1+b3.Size+len(canonical)/4))
		if len(z) < len(canonical) {
			sum := b3.Sum(z[1+b3.Size:])
			z[0] = codecZstd
			copy(z[1:], sum[:])
			return z
		}
	}
	return append([]byte{codecRaw}, canonical...)
}

// unpack gives bytes of its own, never a part of stored.
func (c codec) unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("stored payload: %w: empty", errPacked)
	}
	switch stored[0] {
	case codecRaw:
		return append([]byte(nil), stored[1:]...), nil
	case codecZstd:
		if len(stored) < 1+b3.Size || b3.Sum(stored[1+b3.Size:]) != b3.Digest(stored[1:1+b3.Size]) {
			return nil, fmt.Errorf("stored payload: %w: frame does not match its hash", errPacked)
		}
		raw, err := c.dec.DecodeAll(stored[1+b3.Size:], nil)
		if err != nil {
			return nil, fmt.Errorf("stored payload: %w: %w", errPacked, err)
		}
		return raw, nil
	default:
		return nil, fmt.Errorf("stored payload: %w: codec %d", errPacked, stored[0])
	}
}

// payload unpacks and parses stored bytes.
func (c codec) payload(stored []byte) (*record.Payload, error) {
	raw, err := c.unpack(stored)
	if err != nil {
		return nil, err
	}
	return record.ParsePayload(raw)
}
