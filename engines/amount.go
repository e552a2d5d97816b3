package engines

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
)

// maxDigits bounds the decimal digits of an Amount.
const maxDigits = 39

// MaxDecimals bounds the number of digits after the point of an amount that people read.
const MaxDecimals = 18

// ErrAmount is returned for a text that is not an Amount: only decimal digits, no leading zero, at
// most 2^128-1.
var ErrAmount = errors.New("not an amount: must be a decimal string of at most 39 digits, up to 2^128-1")

// Errors of ParseDecimal.
var (
	// ErrDecimal is returned for a text that is not digits, or digits, a point and digits, and for
	// a leading zero before another digit.
	ErrDecimal = errors.New("must be digits, or digits, a point and digits, without sign, leading zero or exponent")
	// ErrPrecision is returned for more digits after the point than the asset has.
	ErrPrecision = errors.New("has too many digits after the point")
	// ErrLarge is returned for an amount above 2^128-1 minor units.
	ErrLarge = errors.New("is above 2^128-1 minor units")
)

// Amount is a number of minor units from 0 to 2^128-1. The zero Amount is 0. Amounts are comparable
// with ==.
type Amount struct{ hi, lo uint64 }

// ParseAmount parses an amount in the spelling of String.
func ParseAmount(s string) (Amount, error) {
	if s == "" || len(s) > maxDigits || s[0] == '0' && s != "0" {
		return Amount{}, ErrAmount
	}
	var a Amount
	for i := range len(s) {
		digit := uint64(s[i]) - '0'
		if digit > 9 {
			return Amount{}, ErrAmount
		}
		over, hi := bits.Mul64(a.hi, 10)
		carry, lo := bits.Mul64(a.lo, 10)
		hi, c1 := bits.Add64(hi, carry, 0)
		lo, c := bits.Add64(lo, digit, 0)
		hi, c2 := bits.Add64(hi, 0, c)
		if over+c1+c2 != 0 {
			return Amount{}, ErrAmount
		}
		a = Amount{hi, lo}
	}
	return a, nil
}

// ParseDecimal parses an amount as people write it, in an asset whose amounts have decimals digits
// after the point, 0 to MaxDecimals. The text has at most so many; it is never rounded.
func ParseDecimal(text string, decimals int) (Amount, error) {
	whole, part, point := strings.Cut(text, ".")
	digits := whole + part
	switch {
	case whole == "" || point && part == "" || strings.Trim(digits, "0123456789") != "",
		len(whole) > 1 && whole[0] == '0':
		return Amount{}, ErrDecimal
	case len(part) > decimals:
		return Amount{}, ErrPrecision
	}
	digits = strings.TrimLeft(digits+strings.Repeat("0", decimals-len(part)), "0")
	a, err := ParseAmount(cmp.Or(digits, "0"))
	if err != nil {
		return Amount{}, ErrLarge // nothing else is left to be wrong
	}
	return a, nil
}

// Decimal returns a as people write it, with all digits after the point that the asset has.
func (a Amount) Decimal(decimals int) string {
	text := a.String()
	if decimals == 0 {
		return text
	}
	text = strings.Repeat("0", max(0, decimals+1-len(text))) + text
	point := len(text) - decimals
	return text[:point] + "." + text[point:]
}

// Add returns a+b. If the sum does not fit it returns 0 and false.
func (a Amount) Add(b Amount) (sum Amount, ok bool) {
	lo, c := bits.Add64(a.lo, b.lo, 0)
	hi, c := bits.Add64(a.hi, b.hi, c)
	if c != 0 {
		return Amount{}, false
	}
	return Amount{hi, lo}, true
}

// Sub returns a-b. If b is greater than a it returns 0 and false.
func (a Amount) Sub(b Amount) (diff Amount, ok bool) {
	lo, c := bits.Sub64(a.lo, b.lo, 0)
	hi, c := bits.Sub64(a.hi, b.hi, c)
	if c != 0 {
		return Amount{}, false
	}
	return Amount{hi, lo}, true
}

// Cmp returns -1 if a is less than b, 0 if they are equal, and +1 if a is greater.
func (a Amount) Cmp(b Amount) int {
	if c := cmp.Compare(a.hi, b.hi); c != 0 {
		return c
	}
	return cmp.Compare(a.lo, b.lo)
}

// IsZero reports whether a is 0.
func (a Amount) IsZero() bool { return a == Amount{} }

// Less reports whether a is less than b.
func (a Amount) Less(b Amount) bool {
	_, c := bits.Sub64(a.lo, b.lo, 0)
	_, c = bits.Sub64(a.hi, b.hi, c)
	return c != 0
}

// String returns a in decimal.
func (a Amount) String() string {
	var text [maxDigits]byte
	return string(a.digits(&text))
}

// digits writes a in decimal to the end of text and returns the digits.
func (a Amount) digits(text *[maxDigits]byte) []byte {
	i := len(text)
	for a.hi != 0 {
		hi, r := a.hi/10, a.hi%10
		lo, digit := bits.Div64(r, a.lo, 10)
		i--
		text[i] = '0' + byte(digit)
		a = Amount{hi, lo}
	}
	for {
		i--
		text[i] = '0' + byte(a.lo%10)
		if a.lo /= 10; a.lo == 0 {
			return text[i:]
		}
	}
}

// AmountSize is the length of the binary form of an Amount.
const AmountSize = 16

// AmountOf returns hi·2^64 + lo.
func AmountOf(hi, lo uint64) Amount { return Amount{hi, lo} }

// Parts returns the upper and the lower 64 bits of a.
func (a Amount) Parts() (hi, lo uint64) { return a.hi, a.lo }

// AppendLE appends a as AmountSize bytes in little-endian order.
func (a Amount) AppendLE(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, a.lo)
	return binary.LittleEndian.AppendUint64(dst, a.hi)
}

// AmountLE decodes the first AmountSize bytes of b, as written by AppendLE. It panics if b is
// shorter.
func AmountLE(b []byte) Amount {
	_ = b[AmountSize-1]
	return Amount{lo: binary.LittleEndian.Uint64(b), hi: binary.LittleEndian.Uint64(b[8:])}
}

// AppendText appends a in decimal. It never fails.
func (a Amount) AppendText(dst []byte) ([]byte, error) {
	var text [maxDigits]byte
	return append(dst, a.digits(&text)...), nil
}

// MarshalText returns a in decimal.
func (a Amount) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Amount) UnmarshalText(b []byte) error {
	v, err := ParseAmount(string(b))
	if err != nil {
		return err
	}
	*a = v
	return nil
}
