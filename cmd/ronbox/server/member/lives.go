package member

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/engines/cluster"
)

// envDeposed holds the times of the last two lives that ended by a deposition, in nanoseconds since
// the machine started.
const envDeposed = "_RONBOX_DEPOSED"

// Two depositions within restless make the next life stand for no election for restFor.
const (
	restless = time.Minute
	restFor  = time.Minute
)

// envEnded counts the ends of the lives of this process by their reasons, as in "asked=2,lease=1".
const envEnded = "_RONBOX_ENDED"

// AfterDeposition returns the variables that tell the next life of the ends of the earlier ones, if this
// one ends by a deposition for why. One that was told to transfer the leadership does not count as short. One that was unfit as the leader counts
// as two.
func AfterDeposition(why cluster.Reason) []string {
	counts := countedEndings(os.Getenv(envEnded))
	counts[why]++
	out := []string{envEnded + "=" + textOfEndings(counts)}
	deposed, now := os.Getenv(envDeposed), SinceMachineStart()
	switch why {
	case cluster.ReasonAsked, cluster.ReasonDrain:
		return out
	case cluster.ReasonUnfit:
		deposed = noteDeposed(deposed, now)
	}
	return append(out, envDeposed+"="+noteDeposed(deposed, now))
}

// countedEndings parses a value of envEnded. What is no count is left out.
func countedEndings(text string) map[cluster.Reason]int {
	counts := map[cluster.Reason]int{}
	for part := range strings.SplitSeq(text, ",") {
		why, count, _ := strings.Cut(part, "=")
		if n, err := strconv.Atoi(count); err == nil && n > 0 {
			counts[cluster.Reason(why)] = n
		}
	}
	return counts
}

// textOfEndings returns the value of envEnded for counts.
func textOfEndings(counts map[cluster.Reason]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, string(why)+"="+strconv.Itoa(counts[why]))
	}
	return strings.Join(parts, ",")
}

// noteDeposed adds a deposition to a value of envDeposed.
func noteDeposed(text string, now time.Duration) string {
	_, last, _ := strings.Cut(text, ",")
	return last + "," + strconv.FormatInt(int64(now), 10)
}

// restsFor returns how long this life must not stand for election, by the value of envDeposed.
func restsFor(text string, now time.Duration) time.Duration {
	before, last, _ := strings.Cut(text, ",")
	first, err := strconv.ParseInt(before, 10, 64)
	second, err2 := strconv.ParseInt(last, 10, 64)
	if errors.Join(err, err2) != nil || time.Duration(second-first) > restless {
		return 0
	}
	return min(max(time.Duration(second)+restFor-now, 0), restFor)
}

// SinceMachineStart returns the time on a clock that all lives share.
func SinceMachineStart() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
