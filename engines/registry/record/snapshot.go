package record

import (
	"encoding/binary"
	"errors"
)

// ErrSnapshot is returned for a snapshot that is cut.
var ErrSnapshot = errors.New("a snapshot of items is cut")

// AppendSnapshot appends an item as a snapshot of a set has it: its canonical bytes behind their length in four.
func (it Item) AppendSnapshot(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(it.Bytes))), it.Bytes...)
}

// Snapshot is the set in bytes, one item behind the other by their ids.
func (s Items) Snapshot() []byte {
	var out []byte
	for it := range s.All() {
		out = it.AppendSnapshot(out)
	}
	return out
}

// ParseSnapshot reads the items of a snapshot, or of a part of one that ends with an item.
func ParseSnapshot(raw []byte) (all []Item, err error) {
	for len(raw) > 0 {
		if len(raw) < 4 || len(raw)-4 < int(binary.BigEndian.Uint32(raw)) {
			return nil, ErrSnapshot
		}
		n := 4 + int(binary.BigEndian.Uint32(raw))
		it, err := ParseItem(raw[4:n])
		if err != nil {
			return nil, err
		}
		all, raw = append(all, it), raw[n:]
	}
	return all, nil
}
