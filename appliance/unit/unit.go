package unit

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// Duration is a non-negative time.Duration with texts such as "250ms", "5s", "1m30s", "72h" or
// "30d".
type Duration time.Duration

// durations are the units of a Duration, largest first.
var durations = []scale{
	{"d", uint64(24 * time.Hour)}, {"h", uint64(time.Hour)}, {"m", uint64(time.Minute)}, {"s", uint64(time.Second)},
	{"ms", uint64(time.Millisecond)}, {"us", uint64(time.Microsecond)}, {"ns", 1},
}

// ParseDuration parses one or more numbers with units (d h m s ms us ns) in descending order:
// "1m30s". A bare "0" is zero.
func ParseDuration(s string) (Duration, error) {
	if s == "0" {
		return 0, nil
	}
	total, last := uint64(0), maxValue
	for rest, ok := s, false; rest != "" || s == ""; {
		var v uint64
		var u scale
		if v, u, rest, ok = term(rest, durations); !ok || u.base >= last || v > maxValue-total {
			return 0, fmt.Errorf("unit: %q is not a duration such as 250ms, 5s, 1m30s or 30d", s)
		}
		total, last = total+v, u.base
	}
	return Duration(total), nil
}

// D returns the value as a time.Duration.
func (d Duration) D() time.Duration {
	return time.Duration(d)
}

// String returns the shorter of the two exact forms: one unit, the largest that divides the value
// ("90s"), or several units ("1h1ms").
func (d Duration) String() string {
	if d <= 0 {
		return "0s"
	}
	best := mixed(uint64(d))
	for _, u := range durations {
		if uint64(d)%u.base == 0 {
			if single := strconv.FormatUint(uint64(d)/u.base, 10) + u.suffix; len(single) <= len(best) {
				best = single
			}
			break
		}
	}
	return best
}

// mixed formats v with as many units as necessary.
func mixed(v uint64) string {
	var b []byte
	for _, u := range durations {
		if n := v / u.base; n > 0 {
			b = append(strconv.AppendUint(b, n, 10), u.suffix...)
			v %= u.base
		}
	}
	return string(b)
}

// Short returns d as people read it: its two largest units from seconds on, "1d2h", "10m" or
// "25s", or the largest of a shorter one, "250ms". It is rounded.
func Short(d time.Duration) string {
	if d < 0 {
		return "-" + Short(max(0, -d)) // the least Duration has no opposite
	}
	for i, u := range durations {
		if uint64(d) < u.base {
			continue
		}
		least := u.base
		if least > uint64(time.Second) {
			least = durations[i+1].base
		}
		return mixed(uint64(d.Round(time.Duration(least))))
	}
	return "0s"
}

// MarshalText returns the text form, or an error if the Duration is negative.
func (d Duration) MarshalText() ([]byte, error) {
	if d < 0 {
		return nil, fmt.Errorf("unit: duration %s is negative", time.Duration(d))
	}
	return []byte(d.String()), nil
}

// UnmarshalText parses the text form.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// Size is a non-negative number of bytes with texts such as "512B", "4KiB", "1MB" or "8GiB".
type Size int64

// sizes are the units of a Size. If two fit, the earlier one is printed.
var sizes = []scale{
	{"TiB", 1 << 40},
	{"TB", 1e12},
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"KB", 1e3},
	{"B", 1},
}

// ParseSize parses a number with its unit (B KB KiB MB MiB GB GiB TB TiB). A bare "0" is zero.
func ParseSize(s string) (Size, error) {
	if s == "0" {
		return 0, nil
	}
	v, _, rest, ok := term(s, sizes)
	if !ok || rest != "" {
		return 0, fmt.Errorf("unit: %q is not a size such as 512B, 4KiB, 1MB or 8GiB", s)
	}
	return Size(v), nil
}

// Bytes returns the number of bytes.
func (z Size) Bytes() int64 {
	return int64(z)
}

// String returns the shortest exact form.
func (z Size) String() string {
	if z <= 0 {
		return "0B"
	}
	best := ""
	for _, u := range sizes {
		if uint64(z)%u.base == 0 {
			text := strconv.FormatUint(uint64(z)/u.base, 10) + u.suffix
			if best == "" || len(text) < len(best) {
				best = text
			}
		}
	}
	return best
}

// MarshalText returns the shortest exact form, or an error if the Size is negative.
func (z Size) MarshalText() ([]byte, error) {
	if z < 0 {
		return nil, fmt.Errorf("unit: size %d is negative", int64(z))
	}
	return []byte(z.String()), nil
}

// UnmarshalText parses the text form.
func (z *Size) UnmarshalText(b []byte) error {
	v, err := ParseSize(string(b))
	if err != nil {
		return err
	}
	*z = v
	return nil
}

// scale is a unit: its suffix and its number of base units.
type scale struct {
	suffix string
	base   uint64
}

// maxValue is the largest value of either type, in base units.
const maxValue = uint64(math.MaxInt64)

// term parses a number with its unit, at most 19 digits without a sign, from the start of s. ok is
// false if s does not begin with one or the value does not fit.
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
