package packtest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
)

// BigDirectory returns PMTiles with a directory of n entries, all of them for the same byte: in a
// leaf, or in the root.
func BigDirectory(n int, leaf bool) []byte {
	column := bytes.Repeat([]byte{1}, 4*n)
	big := squeeze(append(binary.AppendUvarint(nil, uint64(n)), column...))
	root, leaves := big, []byte(nil)
	if leaf {
		length := binary.AppendUvarint(nil, uint64(len(big)))
		root, leaves = squeeze(append(append([]byte{1, 1, 0}, length...), 1)), big
	}
	h := make([]byte, 127)
	copy(h, "PMTiles\x03")
	copy(h[96:], []byte{0, 2, 1, 2, 0, 15})
	at := uint64(len(h))
	for i, part := range [][]byte{root, nil, leaves, {1}} {
		binary.LittleEndian.PutUint64(h[8+16*i:], at)
		binary.LittleEndian.PutUint64(h[16+16*i:], uint64(len(part)))
		at += uint64(len(part))
	}
	return bytes.Join([][]byte{h, root, leaves, {1}}, nil)
}

func squeeze(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level that exists
	_, _ = z.Write(b)                                       // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}
