package record

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// DecodeBatch returns a batch equal to the one that Append wrote and detects every flipped bit.
// Every member changes the root.
func TestBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		raw := b.Append(nil)
		if back, err := DecodeBatch(raw); err != nil || back != b || len(raw) != BatchSize {
			t.Fatalf("wrote %+v, read %+v, %v", b, back, err)
		}
		bit := rapid.IntRange(0, 8*len(raw)-1).Draw(t, "bit")
		raw[bit/8] ^= 1 << (bit % 8)
		var bad *FormatError
		if got, err := DecodeBatch(raw); !errors.As(err, &bad) {
			t.Fatalf("bit %d: %+v, %v", bit, got, err)
		}
		roots := map[b3.Digest]bool{b.Root(): true}
		for i, change := range []func(*Batch){
			func(b *Batch) { b.No++ }, func(b *Batch) { b.First++ }, func(b *Batch) { b.Count++ }, func(b *Batch) { b.At++ },
			func(b *Batch) { b.Merkle[31]++ }, func(b *Batch) { b.Prev[0]++ },
		} {
			other := b
			change(&other)
			if roots[other.Root()] {
				t.Fatalf("change %d leaves the root", i)
			}
			roots[other.Root()] = true
		}
	})
}

func TestBatchForms(t *testing.T) {
	good := Batch{No: 1, First: 1, Count: 2, At: 3}
	raw := good.Append(nil)
	if good.Last() != 2 || good.Root() != b3.Derive("ronbox ledger batch v1").Sum(raw[:BatchSize-crcSize]) {
		t.Error("the root is not the digest of the header for its purpose")
	}
	for name, change := range map[string]func([]byte){
		"version": func(b []byte) { b[0] = 2 }, "padding": func(b []byte) { b[3] = 1 }, "no": func(b []byte) { b[4] = 0 }, "first": func(b []byte) { b[12] = 0 },
		"count": func(b []byte) { b[20] = 0 }, "time": func(b []byte) { b[35] = 0x80 }, "end": func(b []byte) { copy(b[20:28], "\xff\xff\xff\xff\xff\xff\xff\xff") },
	} {
		b := append([]byte(nil), raw...)
		change(b)
		if got, err := DecodeBatch(reseal(b)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	for _, b := range [][]byte{nil, raw[:len(raw)-1], append(raw, 0)} {
		if got, err := DecodeBatch(b); err == nil {
			t.Errorf("%d bytes: read as %+v", len(b), got)
		}
	}
}
