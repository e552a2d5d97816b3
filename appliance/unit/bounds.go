package unit

import (
	"fmt"
	"strconv"
	"time"
)

// Within returns the fault of a key of a configuration whose value is not between lo and hi, both included, in the words of all sections:
// `shards = 0: must be 1..64`. A text is quoted, as TOML has it. An empty range, whose bound another key sets, is the fault of that key alone.
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
