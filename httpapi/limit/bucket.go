package limit

import (
	"sync/atomic"
	"time"
)

// Bucket is one token bucket, full at first. The zero Bucket has no limit. It is safe for concurrent use, never waits and allocates nothing but in Set.
type Bucket struct {
	rate atomic.Pointer[Rate]
	full atomic.Int64 // when the bucket is full again, Unix nanoseconds
}

// Set changes the rate from now on: rps tokens each second with room for burst, as Per reads them. What was taken stays taken.
func (b *Bucket) Set(rps float64, burst int) {
	r := Per(rps, burst)
	b.rate.Store(&r)
}

// Take takes one token, or says after how long there is one.
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
