package idem

import (
	"bytes"
	"testing"
)

// FuzzMeta reads any bytes as the meta row of a run: what is one has no other bytes.
func FuzzMeta(f *testing.F) {
	f.Add((&Meta{First: 1, Last: 9, FirstAt: 2, LastAt: 3, Keys: 4, Words: 5}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && !bytes.Equal(m.encode(), b) {
			t.Errorf("%x is written again as %x", b, m.encode())
		}
	})
}
