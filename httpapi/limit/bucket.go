package limit

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"
)

// jump is how far a bucket may be ahead of its bound. Beyond it the clock must have jumped back.
const jump = time.Second

// Rate is the rate of tokens and the size of a burst. The zero Rate means no limit.
type Rate struct {
	interval int64 // nanoseconds between two tokens; 0: no limit
	slack    int64 // nanoseconds by which a usable bucket may be ahead: (burst-1)·interval
}

// maxSlack bounds slack, so that its sum with the time does not overflow.
const maxSlack = int64(10 * 365 * 24 * time.Hour)

// Per returns a rate of rps tokens per second and a burst of at least 1. An rps of 0 or less means
// no limit.
func Per(rps float64, burst int) Rate {
	if rps <= 0 || math.IsNaN(rps) {
		return Rate{}
	}
	interval := max(1, min(float64(time.Second)/rps, float64(maxSlack)))
	slack := min(interval*float64(max(1, burst)-1), float64(maxSlack))
	return Rate{interval: int64(interval), slack: int64(slack)}
}

// Left is the state of a bucket after a token was requested.
type Left struct {
	Tokens int           // available tokens
	Burst  int           // tokens of a full bucket
	Full   time.Duration // time until it is full
}

// left returns the state of a bucket that will be full at next.
func (r Rate) left(next, now int64) Left {
	ahead := max(next-now, 0)
	return Left{
		Tokens: int(max(r.slack+r.interval-ahead, 0) / r.interval),
		Burst:  int(r.slack/r.interval) + 1,
		Full:   time.Duration(ahead),
	}
}

// full returns when a bucket that would be full at was is full again after one more token is taken
// at now. If ok is false, there is no token before wait has passed.
func (r Rate) full(was, now int64) (next int64, ok bool, wait time.Duration) {
	if was > now+r.slack+r.interval+int64(jump) {
		was = now + r.slack + r.interval // the clock or the rate has changed: empty
	}
	ahead := max(was, now) - now
	if ahead > r.slack {
		return was, false, time.Duration(ahead - r.slack)
	}
	return now + ahead + r.interval, true, 0
}

// Bucket is a token bucket. It starts full. The zero Bucket has no limit. It is safe for concurrent
// use, never waits, and allocates only in Set.
type Bucket struct {
	rate atomic.Pointer[Rate]
	full atomic.Int64 // when the bucket will be full, Unix nanoseconds
}

// Set changes the rate to that of [Per]. Tokens taken before stay taken.
func (b *Bucket) Set(rps float64, burst int) {
	r := Per(rps, burst)
	b.rate.Store(&r)
}

// Take takes one token, or returns the time until there is one.
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

// Network returns the address that identifies a client: its IPv4 address, or the first address of
// its IPv6 /64, which belongs to one customer. Clients without an address share the zero Addr.
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
