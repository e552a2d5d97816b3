package unit

import (
	"math"
	"math/bits"
	"strconv"
)

// scale is one unit of a text: its suffix and how many base units it stands for.
type scale struct {
	suffix string
	base   uint64
}

// maxValue is the largest value of either type, in base units.
const maxValue = uint64(math.MaxInt64)

// term reads one number with its unit, at most 19 digits and no sign, from the front of s. ok is false when s does not begin with one or
// when the value does not fit.
func term(s string, scales []scale) (value uint64, unit scale, rest string, ok bool) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	end := n
	for end < len(s) && (s[end] < '0' || s[end] > '9') {
		end++
	}
	count, err := strconv.ParseUint(s[:n], 10, 63)
	if err != nil {
		return 0, scale{}, s, false
	}
	for _, u := range scales {
		if u.suffix == s[n:end] {
			hi, lo := bits.Mul64(count, u.base)
			return lo, u, s[end:], hi == 0 && lo <= maxValue
		}
	}
	return 0, scale{}, s, false
}
