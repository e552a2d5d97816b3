package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines"
)

// StateSize is the length of a State's byte form.
const StateSize = 96

// stateVersion is the first byte of what follows the counters.
const stateVersion = 1

// ErrState says that bytes are not a State.
var ErrState = errors.New("record: not the state of an account: must be 96 bytes of version 1")

// State is one asset of one account. The posted sums never decrease.
type State struct {
	CreditsPosted, DebitsPosted engines.Amount
	DebitsHeld                  engines.Amount // set aside for others
	CreditsHeld                 engines.Amount // set aside by others for this account
	DayDebits                   engines.Amount // given on Day
	LastSeq                     uint64         // of the last record that touched it
	Day                         uint32         // days since 1970 in UTC
}

// Balance returns credits less debits. It is not ok if debits exceed credits, as for an issuance
// account.
func (s *State) Balance() (engines.Amount, bool) { return s.CreditsPosted.Sub(s.DebitsPosted) }

// Available returns the balance less the held amount. It is not ok if Balance is not, or if the
// held amount exceeds the balance.
func (s *State) Available() (engines.Amount, bool) {
	balance, ok := s.Balance()
	if !ok {
		return engines.Amount{}, false
	}
	return balance.Sub(s.DebitsHeld)
}

// Append appends s as StateSize bytes.
func (s *State) Append(dst []byte) []byte {
	dst = s.appendSums(dst)
	dst = binary.LittleEndian.AppendUint64(dst, s.LastSeq)
	return append(dst, stateVersion, 0, 0, 0)
}

// DecodeState reads what Append wrote, with ErrState for anything else.
func DecodeState(b []byte) (State, error) {
	if len(b) != StateSize || binary.LittleEndian.Uint32(b[StateSize-4:]) != stateVersion {
		return State{}, ErrState
	}
	var s State
	s.readSums(b)
	s.LastSeq = binary.LittleEndian.Uint64(b[sumsSize:])
	return s, nil
}

// sumsSize is the length of a state in an image: LastSeq is left out, because it is the record's
// Seq.
const sumsSize = 5*engines.AmountSize + 4

func (s *State) appendSums(dst []byte) []byte {
	dst = s.CreditsPosted.AppendLE(dst)
	dst = s.DebitsPosted.AppendLE(dst)
	dst = s.DebitsHeld.AppendLE(dst)
	dst = s.CreditsHeld.AppendLE(dst)
	dst = s.DayDebits.AppendLE(dst)
	return binary.LittleEndian.AppendUint32(dst, s.Day)
}

func (s *State) readSums(b []byte) {
	_ = b[sumsSize-1]
	s.CreditsPosted = engines.AmountLE(b)
	s.DebitsPosted = engines.AmountLE(b[16:])
	s.DebitsHeld = engines.AmountLE(b[32:])
	s.CreditsHeld = engines.AmountLE(b[48:])
	s.DayDebits = engines.AmountLE(b[64:])
	s.Day = binary.LittleEndian.Uint32(b[80:])
}

// Account is what an account has besides its assets.
type Account struct {
	LastNonce    uint64 // the last one used, 0 for none
	LastNonceSeq uint64 // of the record that used it
	OpenedSeq    uint64 // of the record that opened it
	Flags        Flags
}

// Flags is a set of restrictions on an account. The bits are stored.
type Flags uint8

// The flags of an account.
const (
	Frozen   Flags = 1 << iota // no debits, no credits
	NoDebit                    // does not give
	NoCredit                   // does not take
	Closed                     // no debits, no credits, permanently

	allFlags = Frozen | NoDebit | NoCredit | Closed
)

var flagNames = [...]string{"frozen", "no_debit", "no_credit", "closed"}

// Has reports whether any flag of g is set.
func (f Flags) Has(g Flags) bool { return f&g != 0 }

// Names are the words for the flags that are set, in the order of their bits.
func (f Flags) Names() []string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String is Names with commas between.
func (f Flags) String() string { return strings.Join(f.Names(), ",") }

// ParseFlags takes words as Names gives them, in any order.
func ParseFlags(names ...string) (Flags, error) {
	var f Flags
	for _, name := range names {
		bit, err := parseFlag(name)
		if err != nil {
			return 0, err
		}
		f |= bit
	}
	return f, nil
}

func parseFlag(s string) (Flags, error) {
	for i, name := range flagNames {
		if name == s {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("record: %q is not a flag: must be one of %s", s, strings.Join(flagNames[:], ", "))
}

const (
	txPrefix  = "tx_"
	txTextLen = len(txPrefix) + ulid.EncodedSize
)

// ErrTxID says that a text is not a TxID.
var ErrTxID = errors.New(`not a txid: must be "tx_" and 26 upper-case characters of Crockford's base 32`)

// TxID names a record: 48 bits of its time in ms, 64 bits of its Seq and 16 random bits, the most
// significant byte first. The zero TxID is invalid. Ids ascend with Seq, also as text.
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

// IsZero reports whether id is the zero TxID.
func (id TxID) IsZero() bool { return id == TxID{} }

// String is the one spelling of id.
func (id TxID) String() string { return string(id.append(make([]byte, 0, txTextLen))) }

// AppendText implements encoding.TextAppender.
func (id TxID) AppendText(dst []byte) ([]byte, error) { return id.append(dst), nil }

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

// stampLayout is RFC 3339 in UTC with three digits of a second's fraction.
const stampLayout = "2006-01-02T15:04:05.000Z"

// stampRoom is the room in which appendStamp allocates nothing: it first writes all nine digits of
// the fraction.
const stampRoom = len(stampLayout) + 8

var errStamp = errors.New(
	"not a time: must be RFC 3339 in UTC with three digits of a fraction, such as 2026-01-02T03:04:05.678Z",
)

// appendStamp appends a time in ns since 1970, which is not negative, as stampLayout, truncated to
// ms.
func appendStamp(dst []byte, ns int64) []byte {
	return time.Unix(0, ns).UTC().AppendFormat(dst, stampLayout)
}

// parseStamp takes what appendStamp prints.
func parseStamp(s string) (ns int64, err error) {
	at, err := time.Parse(stampLayout, s)
	if err != nil || len(s) != len(stampLayout) || at.Unix() < 0 || at.After(time.Unix(0, math.MaxInt64)) {
		return 0, errStamp
	}
	return at.UnixNano(), nil
}
