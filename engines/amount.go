package engines

import (
	"cmp"
	"errors"
	"math/bits"
)

// maxDigits is how many decimal digits an Amount has at most.
const maxDigits = 39

// ErrAmount says that a text is not an Amount: decimal digits alone, no leading zero, at most 2^128-1.
var ErrAmount = errors.New("not an amount: must be a decimal string of at most 39 digits, up to 2^128-1")

// Amount is a number of minor units, 0 to 2^128-1. The zero Amount is 0, and == compares.
type Amount struct{ hi, lo uint64 }

// ParseAmount takes the one spelling of an amount, as String gives it.
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

// Add is a+b; ok is false, and the sum 0, if that is more than an Amount holds.
func (a Amount) Add(b Amount) (sum Amount, ok bool) {
	lo, c := bits.Add64(a.lo, b.lo, 0)
	hi, c := bits.Add64(a.hi, b.hi, c)
	if c != 0 {
		return Amount{}, false
	}
	return Amount{hi, lo}, true
}

// Sub is a-b; ok is false, and the difference 0, if b is more than a.
func (a Amount) Sub(b Amount) (diff Amount, ok bool) {
	lo, c := bits.Sub64(a.lo, b.lo, 0)
	hi, c := bits.Sub64(a.hi, b.hi, c)
	if c != 0 {
		return Amount{}, false
	}
	return Amount{hi, lo}, true
}

// Cmp is -1, 0 or +1: a is less than b, equal to it, or more.
func (a Amount) Cmp(b Amount) int {
	if c := cmp.Compare(a.hi, b.hi); c != 0 {
		return c
	}
	return cmp.Compare(a.lo, b.lo)
}

// IsZero says whether a is 0.
func (a Amount) IsZero() bool { return a == Amount{} }

// Less says whether a is smaller than b.
func (a Amount) Less(b Amount) bool {
	_, c := bits.Sub64(a.lo, b.lo, 0)
	_, c = bits.Sub64(a.hi, b.hi, c)
	return c != 0
}

// String is a in decimal.
func (a Amount) String() string {
	var text [maxDigits]byte
	return string(a.digits(&text))
}

// digits writes a in decimal to the end of text and returns that part.
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
