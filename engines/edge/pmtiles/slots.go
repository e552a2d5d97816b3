package pmtiles

import (
	"context"
	"runtime"
)

// Slots bounds how much is decoded at one time, and so the memory that it takes: all archives
// together have a slot for each core, and one archive at most half of them, so that another finds
// one.
type Slots struct{ own, all chan struct{} }

// NewSlots returns the slots of all archives. Each archive gets its part by Share.
func NewSlots() Slots {
	//rawchan: a semaphore, it queues nothing
	return Slots{all: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Share returns the slots of one archive.
func (s Slots) Share() Slots {
	//rawchan: a semaphore, it queues nothing
	s.own = make(chan struct{}, max(1, cap(s.all)/2))
	return s
}

// Take waits for a slot until ctx ends. Unless it returns an error, which is the cause of ctx, the
// caller gives the slot back by release.
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
