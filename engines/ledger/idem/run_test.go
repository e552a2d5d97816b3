package idem

import (
	"testing"
)

// A meta row is accepted up to the bounds of each number and refused beyond them.
func TestMetaBounds(t *testing.T) {
	const words = 18_874_368 // 64 Mi keys of 18 bits
	for name, tt := range map[string]struct {
		meta Meta
		fine bool
	}{
		"the least":                {Meta{First: 1, Last: 1, Keys: 1, Words: 1}, true},
		"from record 0":            {Meta{First: 0, Last: 1, Keys: 1, Words: 1}, false},
		"it ends before it begins": {Meta{First: 2, Last: 1, Keys: 1, Words: 1}, false},
		"its time runs back":       {Meta{First: 1, Last: 2, FirstAt: 6, LastAt: 5, Keys: 1, Words: 1}, false},
		"its time stands":          {Meta{First: 1, Last: 2, FirstAt: 6, LastAt: 6, Keys: 1, Words: 1}, true},
		"without keys":             {Meta{First: 1, Last: 2, Keys: 0, Words: 1}, false},
		"without a filter":         {Meta{First: 1, Last: 2, Keys: 1, Words: 0}, false},
		"the largest filter":       {Meta{First: 1, Last: 2, Keys: 1, Words: words}, true},
		"a filter too large":       {Meta{First: 1, Last: 2, Keys: 1, Words: words + 1}, false},
	} {
		got, err := decodeMeta(bare(t, tt.meta))
		if (err == nil) != tt.fine {
			t.Errorf("%s: err = %v", name, err)
		}
		if err == nil && got != tt.meta {
			t.Errorf("%s: %+v is read as %+v", name, tt.meta, got)
		}
	}
	whole := bare(t, Meta{First: 1, Last: 1, Keys: 1, Words: 1})
	for name, b := range map[string][]byte{
		"nothing": {}, "a byte less": whole[:len(whole)-1], "a byte more": append(whole[:len(whole):len(whole)], 0),
		"another version": append([]byte{metaVersion + 1}, whole[1:]...),
	} {
		if m, err := decodeMeta(b); err == nil {
			t.Errorf("%s is read as %+v", name, m)
		}
	}
}
