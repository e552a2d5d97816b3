package idem

import (
	"bytes"
	"testing"

	"ronbox/store"
)

// FuzzMeta decodes arbitrary bytes as the meta row of a run. A row that decodes encodes to the same
// bytes.
func FuzzMeta(f *testing.F) {
	f.Add(bare(f, Meta{First: 1, Last: 9, FirstAt: 2, LastAt: 3, Keys: 4, Words: 5}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && !bytes.Equal(bare(t, m), b) {
			t.Errorf("%x is written again as %x", b, bare(t, m))
		}
	})
}

// bare encodes a meta row without its checksum.
func bare(t testing.TB, m Meta) []byte {
	t.Helper()
	b, err := store.CutSum(behind(tagMeta), m.encode())
	if err != nil {
		t.Fatal(err)
	}
	return b
}
