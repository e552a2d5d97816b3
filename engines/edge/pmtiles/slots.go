package pmtiles

import (
	"context"
	"runtime"
)

// Slots bounds concurrent decoding and its memory. All archives together have a slot per core, and
// one archive has at most half of them, so that another archive finds a free one.
type Slots struct{ own, all chan struct{} }

// NewSlots returns the slots of all archives. Share returns the part of one archive.
func NewSlots() Slots {
	//rawchan: a semaphore, not a queue
	return Slots{all: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Share returns the slots of one archive.
func (s Slots) Share() Slots {
	//rawchan: a semaphore, not a queue
	s.own = make(chan struct{}, max(1, cap(s.all)/2))
	return s
}

// Take waits for a slot until ctx ends. The caller must call release, unless Take returns an error,
// which is the cause of ctx.
func (s Slots) Take(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case s.own <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case s.all <- struct{}{}:
		return func() { <-s.all; <-s.own }, nil
	case <-ctx.Done():
		<-s.own
		return nil, context.Cause(ctx)
	}
}
