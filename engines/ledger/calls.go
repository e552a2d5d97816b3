package ledger

import (
	"context"
	"errors"
	"sync"
)

// calls counts the writes under way, so that Close can wait for them.
type calls struct {
	mu     sync.Mutex    // a leaf: it covers the fields
	open   int           // guarded by mu
	closed bool          // likewise
	idle   chan struct{} // closed once closed and open is 0; made by close; guarded by mu
}

var errClosed = errors.New("the ledger is closed")

// enter counts a call in, unless the intake has ended.
func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &UnavailableError{Cause: errClosed}
	}
	c.open++
	return nil
}

func (c *calls) leave() {
	c.mu.Lock()
	c.open--
	if c.closed && c.open == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
}

// len is how many calls are under way.
func (c *calls) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// close ends the intake and waits for the last call, or for ctx.
func (c *calls) close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.idle = true, make(chan struct{})
		if c.open == 0 {
			close(c.idle)
		}
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
