package limit

import (
	"math"
	"time"
)

// jump is by how much a bucket may lie ahead of its own bound before the clock must have jumped back.
const jump = time.Second

// Rate is how fast tokens come and how many are kept for a burst. The zero Rate is no limit.
type Rate struct {
	interval int64 // nanoseconds between two tokens, 0 for no limit
	slack    int64 // by how many nanoseconds a bucket may be ahead and still give: (burst-1)·interval
}

// maxSlack bounds a bucket that takes years to fill, lest the sum with the clock overflow.
const maxSlack = int64(10 * 365 * 24 * time.Hour)

// Per is rps tokens each second with room for burst, which is at least 1. An rps of 0 or less is no limit.
func Per(rps float64, burst int) Rate {
	if rps <= 0 || math.IsNaN(rps) {
		return Rate{}
	}
	interval := max(1, min(float64(time.Second)/rps, float64(maxSlack)))
	slack := min(interval*float64(max(1, burst)-1), float64(maxSlack))
	return Rate{interval: int64(interval), slack: int64(slack)}
}

// Left is what a bucket has after a token was asked of it.
type Left struct {
	Tokens int           // that it would give now
	Burst  int           // that it gives when it is full
	Full   time.Duration // until it is
}

// left is that of a bucket which is full again at next.
func (r Rate) left(next, now int64) Left {
	ahead := max(next-now, 0)
	return Left{
		Tokens: int(max(r.slack+r.interval-ahead, 0) / r.interval), Burst: int(r.slack/r.interval) + 1, Full: time.Duration(ahead),
	}
}

// full is the time at which a bucket that was full at some time is full again, once it gave one more token at now. Without ok it gives
// none before wait has passed.
func (r Rate) full(was, now int64) (next int64, ok bool, wait time.Duration) {
	if was > now+r.slack+r.interval+int64(jump) {
		was = now + r.slack + r.interval // the clock or the rate was changed: empty
	}
	ahead := max(was, now) - now
	if ahead > r.slack {
		return was, false, time.Duration(ahead - r.slack)
	}
	return now + ahead + r.interval, true, 0
}
