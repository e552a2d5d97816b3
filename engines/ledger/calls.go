package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"ronbox/engines/ledger/idem"
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

// strayKept is the time for which the keys of an applied abandoned command are kept. It is longer
// than the time from the Prepare of a request to its commit.
const strayKept = time.Minute

// strays holds the keys of abandoned commands: the caller has left while the committer had the
// command. While a key is in keys, no other call reports that its op was not applied. The keys of
// an applied command stay for strayKept. Those of a command without writes go at its end. Those of
// a group with an unknown outcome stay until the process ends.
type strays struct {
	mu   sync.Mutex // a leaf
	keys map[idem.Key]int
	past []pastStray // applied, the oldest first
}

// pastStray holds the keys of an applied command until a time.
type pastStray struct {
	keys []idem.Key
	at   time.Time
}

func newStrays() *strays { return &strays{keys: map[idem.Key]int{}} }

// add enters the keys of c, unless c has ended.
func (s *strays) add(c *post) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over {
		return
	}
	c.stray = true
	for _, k := range c.keys() {
		s.keys[k]++
	}
}

// end notes that c has ended, and whether it was applied.
func (s *strays) end(c *post, applied bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.over = true
	for len(s.past) > 0 && !now.Before(s.past[0].at) {
		s.remove(s.past[0].keys)
		s.past = s.past[1:]
	}
	switch {
	case !c.stray:
	case applied:
		s.past = append(s.past, pastStray{c.keys(), now.Add(strayKept)})
	default:
		s.remove(c.keys())
	}
}

// remove forgets keys. Called with mu held.
func (s *strays) remove(keys []idem.Key) {
	for _, k := range keys {
		if s.keys[k]--; s.keys[k] == 0 {
			delete(s.keys, k)
		}
	}
}

// hasKey reports whether k is in an abandoned command that may still be applied.
func (s *strays) hasKey(k idem.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[k] > 0
}

// has reports whether a key of c is on its way in an earlier command.
func (s *strays) has(c *post) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return false
	}
	for _, k := range c.keys() {
		if s.keys[k] > 0 {
			return true
		}
	}
	return false
}

// len returns the number of keys.
func (s *strays) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// keys returns what c is found by when its caller asks again: the dedupe keys and references of its
// ops, or the permanent id of a settlement.
func (c *post) keys() []idem.Key {
	if c.once != nil {
		return []idem.Key{idem.Key(c.once.key.Key)}
	}
	keys := make([]idem.Key, 0, len(c.ops))
	for i := range c.ops {
		if c.ops[i].keyed {
			keys = append(keys, c.ops[i].key)
		}
		keys = c.ops[i].references(keys)
	}
	return keys
}

// references appends the references of a and of the ops in it to keys.
func (a *action) references(keys []idem.Key) []idem.Key {
	if a.reference != nil {
		keys = append(keys, idem.Key(a.reference.guard.Key))
	}
	for i := range a.inner {
		keys = a.inner[i].references(keys)
	}
	return keys
}
