package unit

import (
	"fmt"
	"strconv"
	"time"
)

// Within returns an error if v is not between lo and hi, inclusive, with the text used by all
// sections of the configuration: `shards = 0: must be 1..64`. A text is quoted as in TOML. If lo
// exceeds hi, a bound that comes from another key is wrong, and Within returns nil.
func Within[T ~int | ~int64 | ~float64](key string, v, lo, hi T) error {
	if v >= lo && v <= hi || lo > hi {
		return nil
	}
	text := fmt.Sprint(v)
	if _, ok := any(v).(fmt.Stringer); ok {
		text = strconv.Quote(text)
	}
	return fmt.Errorf("%s = %s: must be %v..%v", key, text, lo, hi)
}

// Between is Within for a Duration.
func Between(key string, v Duration, lo, hi time.Duration) error {
	return Within(key, v, Duration(lo), Duration(hi))
}
