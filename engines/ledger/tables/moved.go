package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/engines"
	"ronbox/store"
)

// MovedKey names what a token moved of an asset on a day of ledger time. Days come first, so that those that are over lie at the front.
type MovedKey struct {
	Day   uint32
	Token [8]byte // hash of its id, as records have it
	Asset uint32
}

const movedKeySize = 4 + 8 + 4

var moved = store.NewTable(bMoved, store.Key[MovedKey]{
	Append: func(dst []byte, k MovedKey) []byte {
		dst = append(binary.BigEndian.AppendUint32(dst, k.Day), k.Token[:]...)
		return binary.BigEndian.AppendUint32(dst, k.Asset)
	},
	Decode: func(b []byte) (MovedKey, error) {
		if len(b) != movedKeySize {
			return MovedKey{}, errLength
		}
		return MovedKey{binary.BigEndian.Uint32(b), [8]byte(b[4:12]), binary.BigEndian.Uint32(b[12:])}, nil
	},
}, fixed(1, engines.AmountSize,
	func(b []byte, a *engines.Amount) { putAmount(b, *a) },
	func(b []byte, a *engines.Amount) error { *a = engines.AmountLE(b); return nil })).Summed().Alone()

// GetMoved reads what a token moved on a day.
func GetMoved(r store.Reader, k MovedKey) engines.Amount {
	sum, _ := moved.Get(r, k)
	return sum
}

// PutMoved writes what a token moved on a day.
func PutMoved(w *store.Writes, k MovedKey, sum engines.Amount) { moved.Put(w, k, sum) }

// Moved walks what tokens moved, the oldest day first.
func Moved(r store.Reader) iter.Seq2[MovedKey, engines.Amount] { return moved.All(r) }

// DropMoved takes out up to n rows of the days before day.
func DropMoved(r store.Reader, w *store.Writes, day uint32, n int) {
	for k := range moved.Range(r, MovedKey{}, MovedKey{Day: day}) {
		if n--; n < 0 {
			return
		}
		moved.Delete(w, k)
	}
}
