package b3

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

const (
	lanes     = 8
	laneSize  = 1024 // one chunk of BLAKE3: longer inputs are trees of chunks
	blockSize = 64

	// alone is the number of inputs up to which a pass over eight lanes does not pay off.
	alone = 2
)

// Flags of BLAKE3's compression for the first and the last block of a single chunk.
const (
	chunkStart = 1 << 0
	chunkEnd   = 1 << 1
	rootNode   = 1 << 3
)

// iv is the chaining value that the plain mode starts with.
var iv = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// Gang hashes many short inputs faster than one at a time: eight at once if the processor supports
// it. It must not be used concurrently. The zero Gang is ready to use and has 8 KB.
type Gang struct {
	n    int // lanes in use
	size [lanes]int
	dst  [lanes]*Digest
	in   [lanes][laneSize]byte
	cv   [8][lanes]uint32
}

// Add sets *dst, at the latest at the next Flush, to the digest of prefix, a and b in this order.
// It does not retain a or b.
func (g *Gang) Add(dst *Digest, prefix byte, a, b []byte) {
	size := 1 + len(a) + len(b)
	if size > laneSize {
		*dst = sumParts(prefix, a, b)
		return
	}
	in := &g.in[g.n]
	in[0] = prefix
	copy(in[1:], a)
	copy(in[1+len(a):], b)
	if rest := size % blockSize; rest != 0 {
		clear(in[size : size+blockSize-rest]) // the last block is padded with zeros
	}
	g.size[g.n], g.dst[g.n] = size, dst
	if g.n++; g.n == lanes {
		g.Flush()
	}
}

func sumParts(prefix byte, a, b []byte) (d Digest) {
	h := blake3.New()
	for _, part := range [][]byte{{prefix}, a, b} {
		_, _ = h.Write(part)
	}
	h.Sum(d[:0])
	return d
}

// Flush completes all digests. It writes to no dst afterwards.
func (g *Gang) Flush() {
	if !wide || g.n <= alone {
		for i := range g.n {
			*g.dst[i] = Sum(g.in[i][:g.size[i]])
		}
	} else {
		g.flushWide()
	}
	g.n, g.dst = 0, [lanes]*Digest{}
}

// flushWide compresses all lanes block by block. Results of a lane after its last block are
// discarded.
func (g *Gang) flushWide() {
	blocks := 0
	for i := range g.n {
		blocks = max(blocks, (g.size[i]+blockSize-1)/blockSize)
	}
	for w := range g.cv {
		for i := range g.cv[w] {
			g.cv[w][i] = iv[w]
		}
	}
	for block := range blocks {
		var lens, flags [lanes]uint32
		start := block * blockSize
		for i := range g.n {
			lens[i] = blockSize
			if block == 0 {
				flags[i] = chunkStart
			}
			if left := g.size[i] - start; left > 0 && left <= blockSize {
				lens[i] = uint32(left)
				flags[i] |= chunkEnd | rootNode
			}
		}
		compress8(&g.cv, &g.in[0][start], &lens, &flags)
		for i := range g.n {
			if flags[i]&rootNode != 0 {
				g.take(i)
			}
		}
	}
}

// take writes the digest of lane i.
func (g *Gang) take(i int) {
	d := g.dst[i]
	for w := range g.cv {
		binary.LittleEndian.PutUint32(d[4*w:], g.cv[w][i])
	}
}
