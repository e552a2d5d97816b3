package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/store"
)

// MarkEvery is how many postings of a balance lie between two marks: what a walk from a mark has to pass at most.
const MarkEvery = 256

// MarkKey names a mark: number n stands at posting n × MarkEvery of a balance. Postings are counted from 1.
type MarkKey struct {
	StateKey
	N uint64
}

// Mark is where that posting is in the journal.
type Mark struct {
	MarkKey
	Seq uint64
}

var marks = store.NewTable(bMarks, store.Key[MarkKey]{
	Append: func(dst []byte, k MarkKey) []byte {
		return binary.BigEndian.AppendUint64(stateKeys().Append(dst, k.StateKey), k.N)
	},
	Decode: func(b []byte) (k MarkKey, err error) {
		if len(b) != 20 {
			return k, errLength
		}
		k.StateKey, err = stateKeys().Decode(b[:12])
		k.N = binary.BigEndian.Uint64(b[12:])
		return k, err
	},
}, u64Value()).Summed().Alone()

// GetMark reads where a mark points.
func GetMark(r store.Reader, k MarkKey) (seq uint64, known bool) { return marks.Get(r, k) }

// PutMark writes a mark.
func PutMark(w *store.Writes, m Mark) { marks.Put(w, m.MarkKey, m.Seq) }

// Marks walks the marks in the order of the file.
func Marks(r store.Reader) iter.Seq2[MarkKey, uint64] { return marks.All(r) }
