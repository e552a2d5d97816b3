package limit

import (
	"math"
	"net/netip"
	"sync/atomic"
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

// Per returns a rate of rps tokens each second with room for burst, which is at least 1. An rps of 0 or less is no limit.
func Per(rps float64, burst int) Rate {
	if rps <= 0 || math.IsNaN(rps) {
		return Rate{}
	}
	interval := max(1, min(float64(time.Second)/rps, float64(maxSlack)))
	slack := min(interval*float64(max(1, burst)-1), float64(maxSlack))
	return Rate{interval: int64(interval), slack: int64(slack)}
}

// Left is the rest of a bucket after a token was asked of it.
type Left struct {
	Tokens int           // that it would give now
	Burst  int           // that it gives when it is full
	Full   time.Duration // until it is
}

// left returns the rest of a bucket that is full again at next.
func (r Rate) left(next, now int64) Left {
	ahead := max(next-now, 0)
	return Left{
		Tokens: int(max(r.slack+r.interval-ahead, 0) / r.interval), Burst: int(r.slack/r.interval) + 1, Full: time.Duration(ahead),
	}
}

// full returns the time at which a bucket that would be full at was is full again, once it gave one more token at now. Without ok it gives
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

// Bucket is one token bucket, full at first. The zero Bucket has no limit. It is safe for concurrent use, never waits and allocates nothing but in Set.
type Bucket struct {
	rate atomic.Pointer[Rate]
	full atomic.Int64 // when the bucket is full again, Unix nanoseconds
}

// Set changes the rate from now on: rps tokens each second with room for burst, as Per reads them. Taken tokens stay taken.
func (b *Bucket) Set(rps float64, burst int) {
	r := Per(rps, burst)
	b.rate.Store(&r)
}

// Take takes one token, or returns after how long there is one.
func (b *Bucket) Take(now time.Time) (ok bool, wait time.Duration) {
	r := b.rate.Load()
	if r == nil || r.interval == 0 {
		return true, 0
	}
	at := now.UnixNano()
	for {
		was := b.full.Load()
		next, ok, wait := r.full(was, at)
		if next == was || b.full.CompareAndSwap(was, next) {
			return ok, wait
		}
	}
}

// Network returns the address that stands for one client: its own, or of IPv6 the first of its /64, which one customer has alone.
// Clients without an address share the zero Addr.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
