package store

import "context"

// Hand has c applied and synced as Commit does, and does not wait for it: ended is told how it ended, once, by the committer where it would
// answer a caller, or by whoever turns the lane away. It must not wait. Hand itself waits for a place in the lane until ctx ends, and if it
// gives an error, one of Commit's, ended is not told. Once c has its place nothing takes it back, whatever becomes of ctx.
// Who waits for ended has Waited say how that failed.
func Hand[R any](ctx context.Context, s *Store, l Lane, c Command[R], ended func(R, error)) error {
	if err := s.admit(ctx, l); err != nil {
		return err
	}
	return s.enqueue(ctx, &handed[R]{body: newBody(context.WithoutCancel(ctx), s.mono(), l, c), s: s, ended: ended}, true)
}

// handed is a command on its way for which nobody waits. Whoever has taken it out of its lane owns it.
type handed[R any] struct {
	body[R]
	s     *Store
	ended func(R, error) // nil once it was told
	taken bool
}

func (q *handed[R]) claim() bool {
	was := q.taken
	q.taken = true
	return !was
}

func (q *handed[R]) finish() {}

func (q *handed[R]) answer() {
	if q.err != nil {
		q.fail(q.err)
		return
	}
	q.s.metrics.waited(q.lane, q.claimed-q.queued)
	q.tell(q.result, nil)
}

func (q *handed[R]) fail(err error) {
	var none R
	q.tell(none, err)
}

func (q *handed[R]) tell(out R, err error) {
	if ended := q.ended; ended != nil {
		q.ended = nil // before the call, which may panic
		ended(out, err)
	}
}
