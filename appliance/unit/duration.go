package unit

import (
	"fmt"
	"strconv"
	"time"
)

// Duration is a time.Duration, not negative, whose text is "250ms", "5s", "1m30s", "72h" or "30d".
type Duration time.Duration

// durations are the units of a Duration, largest first.
var durations = []scale{
	{"d", uint64(24 * time.Hour)}, {"h", uint64(time.Hour)}, {"m", uint64(time.Minute)}, {"s", uint64(time.Second)},
	{"ms", uint64(time.Millisecond)}, {"us", uint64(time.Microsecond)}, {"ns", 1},
}

// ParseDuration reads one or more numbers, each with its unit (d h m s ms us ns), units falling: "1m30s". A bare "0" is zero.
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

// D is the value as package time has it.
func (d Duration) D() time.Duration {
	return time.Duration(d)
}

// String is the shorter of the two exact forms: the value in the one largest unit that divides it ("90s"), or spread over several ("1h1ms").
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

// mixed spells v with as many units as it takes.
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

// MarshalText is String. A negative Duration has none.
func (d Duration) MarshalText() ([]byte, error) {
	if d < 0 {
		return nil, fmt.Errorf("unit: duration %s is negative", time.Duration(d))
	}
	return []byte(d.String()), nil
}

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}
