package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Hold is an amount set aside: what the record that made it says, and how it ended.
type Hold struct {
	From, To uint64
	Asset    uint32
	Amount   engines.Amount // all of it is set aside while the hold is open
	At       int64          // when it was made, Unix ns
	Expires  int64          // Unix ns
	Closed   record.Op      // 0 while it is open, else OpCapture, OpRelease, OpExpire
	Closing  uint64         // seq of the record that closed it
}

// Open tells whether the hold still sets its amount aside.
func (h *Hold) Open() bool { return h.Closed == 0 }

// HoldEnd is when an open hold expires.
type HoldEnd struct {
	Expires int64
	Seq     uint64
}

const holdSize = 16 + 4 + engines.AmountSize + 16 + 1 + 8

var (
	holds    = store.NewTable(bHolds, store.U64(), fixed(1, holdSize, putHold, getHold)).Summed().Alone()
	holdEnds = store.NewTable(bEnds, store.Key[HoldEnd]{
		Append: func(dst []byte, e HoldEnd) []byte {
			return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, uint64(e.Expires)), e.Seq)
		},
		Decode: func(b []byte) (HoldEnd, error) {
			if len(b) != 16 {
				return HoldEnd{}, errLength
			}
			return HoldEnd{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
		},
	}, store.None()).Summed()
)

// GetHold reads the hold that the record seq made.
func GetHold(r store.Reader, seq uint64) (Hold, bool) { return holds.Get(r, seq) }

// Holds walks the holds in the order of their making, from a seq on.
func Holds(r store.Reader, from uint64) iter.Seq2[uint64, Hold] { return holds.From(r, from) }

// HoldEnds walks the open holds in the order of their expiry, from one on.
func HoldEnds(r store.Reader, from HoldEnd) iter.Seq[HoldEnd] {
	return func(yield func(HoldEnd) bool) {
		for e := range holdEnds.From(r, from) {
			if !yield(e) {
				return
			}
		}
	}
}

// PutHold writes a hold, and keeps the order of expiry to the open ones.
func PutHold(w *store.Writes, seq uint64, h Hold) {
	holds.Put(w, seq, h)
	if end := (HoldEnd{h.Expires, seq}); h.Open() {
		holdEnds.Put(w, end, struct{}{})
	} else {
		holdEnds.Delete(w, end)
	}
}

func putHold(b []byte, h *Hold) {
	le.PutUint64(b, h.From)
	le.PutUint64(b[8:], h.To)
	le.PutUint32(b[16:], h.Asset)
	putAmount(b[20:], h.Amount)
	le.PutUint64(b[36:], uint64(h.At))
	le.PutUint64(b[44:], uint64(h.Expires))
	b[52] = byte(h.Closed)
	le.PutUint64(b[53:], h.Closing)
}

func getHold(b []byte, h *Hold) error {
	h.From, h.To, h.Asset = le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:])
	h.Amount = engines.AmountLE(b[20:])
	h.At, h.Expires = int64(le.Uint64(b[36:])), int64(le.Uint64(b[44:]))
	h.Closed, h.Closing = record.Op(b[52]), le.Uint64(b[53:])
	switch h.Closed {
	case 0, record.OpCapture, record.OpRelease, record.OpExpire:
	default:
		return errNumber
	}
	if h.At < 0 || h.Expires < 0 || h.Open() != (h.Closing == 0) {
		return errNumber
	}
	return nil
}
