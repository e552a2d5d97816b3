package record

import (
	"encoding/binary"
	"errors"

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

// Balance is what was credited less what was debited. It is not ok for an account that gave more than it got: one that issues.
func (s *State) Balance() (engines.Amount, bool) { return s.CreditsPosted.Sub(s.DebitsPosted) }

// Available is the balance less what is set aside. It is not ok where Balance is not, nor where more is set aside than there is.
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

// sumsSize is the length of what an image in a record says of a state: all but LastSeq, which is the record's Seq.
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
