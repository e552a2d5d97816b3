package engines

import "encoding/binary"

// AmountSize is the length of an Amount's byte form.
const AmountSize = 16

// AmountOf is hi·2^64 + lo.
func AmountOf(hi, lo uint64) Amount { return Amount{hi, lo} }

// Parts are the upper and the lower 64 bits of a.
func (a Amount) Parts() (hi, lo uint64) { return a.hi, a.lo }

// AppendLE appends a as AmountSize bytes, the least significant first.
func (a Amount) AppendLE(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, a.lo)
	return binary.LittleEndian.AppendUint64(dst, a.hi)
}

// AmountLE reads what AppendLE wrote from the first AmountSize bytes of b, which must be there.
func AmountLE(b []byte) Amount {
	_ = b[AmountSize-1]
	return Amount{lo: binary.LittleEndian.Uint64(b), hi: binary.LittleEndian.Uint64(b[8:])}
}

// AppendText appends a in decimal. It never fails.
func (a Amount) AppendText(dst []byte) ([]byte, error) {
	var text [maxDigits]byte
	return append(dst, a.digits(&text)...), nil
}

// MarshalText is a in decimal.
func (a Amount) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText is ParseAmount.
func (a *Amount) UnmarshalText(b []byte) error {
	v, err := ParseAmount(string(b))
	if err != nil {
		return err
	}
	*a = v
	return nil
}
