package clock

import (
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/host"
)

const (
	jumped   = time.Second           // of the wall clock between two readings: the machine may have slept
	exact    = time.Millisecond      // longest measurement of the time asleep that counts
	asleepBy = 10 * time.Millisecond // changes of the time asleep below this are noise
)

// machine returns the wall clock of the machine and a clock that counts as CLOCK_BOOTTIME does. The
// latter is the monotonic clock, which is part of each time.Now, plus the time that the machine
// slept, which takes two system calls and is measured once a second and when the wall clock jumps.
func machine() func() (wall time.Time, up time.Duration) {
	var (
		born     = time.Now()
		slept    = asleep(0)
		base     = slept
		measured time.Duration
		offset   time.Duration // wall clock minus the monotonic clock, at the last reading
	)
	return func() (time.Time, time.Duration) {
		now := time.Now()
		up := now.Sub(born)
		apart := now.Round(0).Sub(born.Round(0)) - up
		if up-measured >= time.Second || (apart-offset).Abs() >= jumped {
			slept, measured = asleep(slept), up
		}
		offset = apart
		return now, up + slept - base
	}
}

// asleep returns how long the machine has slept since it booted. It returns last if that cannot be
// measured or has not changed.
func asleep(last time.Duration) time.Duration {
	var before, boot, after unix.Timespec
	for range 3 {
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return last
		}
		took := after.Nano() - before.Nano()
		if took > int64(exact) {
			continue
		}
		now := time.Duration(boot.Nano() - before.Nano() - took/2)
		if (now - last).Abs() < asleepBy {
			return last
		}
		return now
	}
	return last
}

// synchronised returns the kernel's answer. A clock whose state cannot be read is not trusted.
func synchronised() bool {
	state, err := host.ReadClock()
	return err == nil && state.Synchronised
}
