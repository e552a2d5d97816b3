package ledger

import (
	"errors"
	"sync"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// share is what one caller has in a command. He waits at its reply; if he leaves while the committer has it, the same op asked again finds here
// how it ended.
type share struct {
	ops     []action
	once    *once // of a settlement: its ops are all done or none
	size    int   // of the records it may write, bytes
	touched []Mark
	reply   *flow.Reply[*posted]
	first   int // of its results among the command's; set by Apply

	mu     sync.Mutex // a leaf, with pending's: they cover a few fields
	out    *posted    // nil: nothing was done; guarded by mu
	ended  bool       // out says how it ended; guarded by mu
	forget func()     // takes the share off the table of pending ops, once it has got there; guarded by mu
}

// end answers whoever waits for the share, now or later. Nobody learns the outcome of a group that may or may not be in the file: it stays on
// its way until the process has ended.
func (s *share) end(out *posted, err error) {
	if !errors.Is(err, store.ErrUnknown) {
		s.mu.Lock()
		s.out, s.ended = out, true
		forget := s.forget
		s.mu.Unlock()
		if forget != nil {
			forget()
		}
	}
	if err != nil {
		s.reply.Fail(err)
		return
	}
	s.reply.Answer(out)
}

// anew takes back how the share ended, before its caller asks again.
func (s *share) anew() {
	s.mu.Lock()
	s.ended = false
	s.mu.Unlock()
}

// outcome is how the share ended, nil if nothing was done; not over while that is open.
func (s *share) outcome() (out *posted, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out, s.ended
}

// leave has forget run at the end of the share. It is false if that is over.
func (s *share) leave(forget func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.forget = forget
	return true
}

// weight is how many ops the share has, those in batches too.
func (s *share) weight() int { return s.size / opSize }

// result is that of op i of the share, whose command made out.
func (s *share) result(out *posted, i int) result { return out.results[s.first+i] }

// jointOps is how many ops, those in batches too, callers put into one command together: one that is undone by a bug undoes so many, and each is
// tried again alone.
const jointOps = 512

// joint is the command that waits for the committer, if one does: who comes meanwhile has a share in it, and no command of his own.
type joint struct {
	mu      sync.Mutex // a leaf: it covers the fields, and of the waiting command shares, ops and begun
	waiting *post
}

// join puts s into the command that waits. It is false if there is none, or no room in it.
func (j *joint) join(s *share) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.waiting
	if c == nil {
		return false
	}
	n := c.ops + s.weight()
	if n > jointOps {
		j.waiting = nil
		return false
	}
	c.shares, c.ops = append(c.shares, s), n
	return true
}

// open lets others into c, which is on its way, unless it has begun.
func (j *joint) open(c *post) {
	j.mu.Lock()
	if !c.begun && c.ops < jointOps {
		j.waiting = c
	}
	j.mu.Unlock()
}

// begin closes c, whose turn it is, and gives the shares in it.
func (j *joint) begin(c *post) []*share {
	if j == nil {
		return c.shares
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.begun = true; j.waiting == c {
		j.waiting = nil
	}
	return c.shares
}
