package host

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is what the kernel thinks of its own clock.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration // by how much it may be off; meaningless while not synchronised
}

// ReadClock asks the kernel, which hears it from the time daemon.
func ReadClock() (Clock, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Clock{}, fmt.Errorf("adjtimex: %w", err)
	}
	return clockOf(state, t.Status, int64(t.Maxerror)), nil
}

func clockOf(state int, status int32, maxErrorMicros int64) Clock {
	return Clock{
		Synchronised: state != unix.TIME_ERROR && status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(maxErrorMicros) * time.Microsecond,
	}
}
