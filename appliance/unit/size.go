package unit

import (
	"fmt"
	"strconv"
)

// Size is a number of bytes, not negative, whose text is "512B", "4KiB", "1MB" or "8GiB".
type Size int64

// sizes are the units of a Size; of two that fit, the earlier is printed.
var sizes = []scale{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}, {"B", 1},
}

// ParseSize reads a number with its unit (B KB KiB MB MiB GB GiB TB TiB). A bare "0" is zero.
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

// Bytes is the value in bytes.
func (z Size) Bytes() int64 {
	return int64(z)
}

// String is the shortest exact form.
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

// MarshalText is the shortest exact form. A negative Size has none.
func (z Size) MarshalText() ([]byte, error) {
	if z < 0 {
		return nil, fmt.Errorf("unit: size %d is negative", int64(z))
	}
	return []byte(z.String()), nil
}

// UnmarshalText is ParseSize.
func (z *Size) UnmarshalText(b []byte) error {
	v, err := ParseSize(string(b))
	if err != nil {
		return err
	}
	*z = v
	return nil
}
