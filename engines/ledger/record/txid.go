package record

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"
)

const (
	txPrefix  = "tx_"
	txTextLen = len(txPrefix) + ulid.EncodedSize
)

// ErrTxID says that a text is not a TxID.
var ErrTxID = errors.New(`not a txid: must be "tx_" and 26 upper-case characters of Crockford's base 32`)

// TxID names a record: 48 bits of its time in ms, 64 bits of its Seq and 16 random bits, the most significant byte first. The zero TxID is
// none. In the order of Seq they ascend, also as text, while the ledger's time does not run backwards.
type TxID [16]byte

// NewTxID names the record seq of the time at, in ns since 1970.
func NewTxID(at int64, seq uint64, rnd uint16) TxID {
	var id TxID
	ms := uint64(at / int64(time.Millisecond))
	binary.BigEndian.PutUint64(id[:], ms<<16|seq>>48)
	binary.BigEndian.PutUint64(id[8:], seq<<16|uint64(rnd))
	return id
}

// ParseTxID takes the one spelling of a TxID.
func ParseTxID(s string) (TxID, error) {
	if len(s) != txTextLen || s[:len(txPrefix)] != txPrefix {
		return TxID{}, ErrTxID
	}
	id, err := ulid.ParseStrict(s[len(txPrefix):])
	if err != nil || id.String() != s[len(txPrefix):] {
		return TxID{}, ErrTxID
	}
	return TxID(id), nil
}

// Seq is that of the record.
func (id TxID) Seq() uint64 {
	return binary.BigEndian.Uint64(id[:])<<48 | binary.BigEndian.Uint64(id[8:])>>16
}

// millis is the time of the record in ms since 1970.
func (id TxID) millis() int64 { return int64(binary.BigEndian.Uint64(id[:]) >> 16) }

// IsZero says whether id names nothing.
func (id TxID) IsZero() bool { return id == TxID{} }

// String is the one spelling of id.
func (id TxID) String() string { return string(id.append(make([]byte, 0, txTextLen))) }

// MarshalText is String.
func (id TxID) MarshalText() ([]byte, error) { return id.append(make([]byte, 0, txTextLen)), nil }

// UnmarshalText is ParseTxID.
func (id *TxID) UnmarshalText(b []byte) error {
	v, err := ParseTxID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

func (id TxID) append(dst []byte) []byte {
	var text [ulid.EncodedSize]byte
	_ = ulid.ULID(id).MarshalTextTo(text[:])
	return append(append(dst, txPrefix...), text[:]...)
}
