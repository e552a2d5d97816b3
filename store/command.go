package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ronbox/appliance/flow"
)

// Stamp is a command's place in the life of the file. Both parts grow strictly; a refused command gives its Seq back.
type Stamp struct {
	Seq uint64
	At  int64 // committer's time, Unix ns
}

// Command is a mutation: plain data, immutable, decided before it is queued. Applying the same commands in the same order to the same
// state gives the same state. A command may have Size() int, its encoded size in bytes; else it counts for 1 KiB.
type Command[R any] interface {
	// Kind is stable and versioned, "index.put_name/1"; the word before the dot is the service whose buckets it may touch.
	Kind() string
	// Apply reads through r and fills w, which is merged into the transaction only if it returns nil. No clock, randomness, map
	// order or I/O.
	Apply(r Reader, at Stamp, w *Writes) (R, error)
}

// Group is an engine's state in memory beside the file. Begin opens its tentative layer before a group, Committed publishes it after the
// sync, Aborted drops it. They run in the committer and must not wait; a panic in one ends the process.
type Group interface {
	Begin()
	Committed()
	Aborted()
}

// Lane is a way into the committer. In each group control goes first, then work, then at most one bulk command.
type Lane int

// The lanes.
const (
	Control Lane = iota
	Work
	Bulk
	lanes = 3
)

func (l Lane) String() string { return [lanes]string{"control", "work", "bulk"}[l] }

func (l Lane) spec(producers []string) flow.Spec {
	doc := [lanes]string{
		"node commands: keys, revocations, restore", "commands of the engines", "sweeps and expiry: at most one a group",
	}
	return flow.Spec{
		Service: ownService, Name: l.String(), Kind: flow.KindQueue, Cap: [lanes]int{64, 2048, 16}[l], Policy: flow.WaitDeadline,
		Producers: producers, Consumers: []string{"committer"}, Doc: doc[l],
	}
}

// Commit has c applied and synced. It waits for a place in the lane and then for the answer, both until ctx ends. The after functions run
// once the sync is done, in order and before any caller of the group is answered; they must not wait. Errors: Apply's own, unchanged;
// ErrTimeout or the cause of ctx, ErrClosed, ErrRestored, ErrFull, ErrInternal, ErrPoisoned: nothing was written; ErrUnknown, which some
// PoisonErrors are too: it may have been.
func Commit[R any](ctx context.Context, s *Store, l Lane, c Command[R], after ...func(R)) (R, error) {
	return submit(ctx, s, l, c, true, after)
}

// TryCommit is Commit that does not wait for a place: a full lane is ErrBusy.
func TryCommit[R any](ctx context.Context, s *Store, l Lane, c Command[R], after ...func(R)) (R, error) {
	return submit(ctx, s, l, c, false, after)
}

func submit[R any](ctx context.Context, s *Store, l Lane, c Command[R], wait bool, after []func(R)) (R, error) {
	var none R
	if err := s.admit(ctx, l); err != nil {
		return none, err
	}
	q := newRequest(ctx, s.mono(), l, c, after)
	if err := s.enqueue(ctx, q, wait); err != nil {
		return none, err
	}
	out, err := q.reply.Wait(ctx)
	if err != nil {
		return none, s.Waited(ctx, q.kind, err, q.reply.Canceled())
	}
	s.metrics.waited(l, q.claimed-q.queued)
	return out, nil
}

// admit refuses what cannot be served at all.
func (s *Store) admit(ctx context.Context, l Lane) error {
	if err := s.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return s.late(ctx)
	}
	if s.info.Load() == nil {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	if l != Control && s.restored.Load() {
		return ErrRestored
	}
	if l == Work {
		return s.room.cause()
	}
	return nil
}

// enqueue waits for a place, if it may, until ctx ends.
func (s *Store) enqueue(ctx context.Context, q job, wait bool) (err error) {
	l := q.header().lane
	if wait {
		err = s.lanes[l].Send(ctx, q)
	} else {
		err = s.lanes[l].TrySend(q)
	}
	switch {
	case err == nil:
		return nil
	case s.Err() != nil:
		return s.Err()
	case ctx.Err() != nil:
		return s.late(ctx)
	}
	return fmt.Errorf("lane %s: %w", l, err)
}

// Waited words and counts why waiting for a command of a kind has failed; left tells whether ctx ended before the command was taken. What came
// from Apply passes as it is.
func (s *Store) Waited(ctx context.Context, kind string, err error, left bool) error {
	switch {
	case left:
		return s.late(ctx)
	case err == flow.ErrUnknown:
		s.metrics.timeout(1)
		return fmt.Errorf("commit %s: %w", kind, ErrUnknown)
	}
	return err
}

// late says why a command was dropped with nothing written.
func (s *Store) late(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(cause, context.DeadlineExceeded) {
		s.metrics.timeout(1)
		return fmt.Errorf("%w: %w", ErrTimeout, cause)
	}
	return fmt.Errorf("commit not begun: %w", cause)
}

// head is the part of a request that does not depend on its result.
type head struct {
	ctx     context.Context
	kind    string
	lane    Lane
	size    int
	queued  int64 // ns on the store's clock
	claimed int64 // likewise; set by the committer before it answers
	err     error // of Apply; owned by the committer
}

func (h *head) header() *head { return h }

// owner is the service of the command's kind.
func (h *head) owner() string {
	service, _, _ := strings.Cut(h.kind, ".")
	return service
}

func sizeOf(c any) int {
	if sized, ok := c.(interface{ Size() int }); ok {
		return sized.Size()
	}
	return commandSz
}

// job is a request whatever its result type: what the committer handles.
type job interface {
	header() *head
	claim() bool              // false: the caller has left
	apply(g *group, at Stamp) // fills the group's Writes, sets header().err
	finish()                  // the after functions
	answer()                  // with the result of apply
	fail(err error)
}

// body is a command and what has come of it.
type body[R any] struct {
	head
	cmd    Command[R]
	result R // owned by the committer until answered
}

func newBody[R any](ctx context.Context, now int64, l Lane, c Command[R]) body[R] {
	return body[R]{head: head{ctx: ctx, kind: c.Kind(), lane: l, size: sizeOf(c), queued: now}, cmd: c}
}

func (b *body[R]) apply(g *group, at Stamp) {
	defer g.recovered(&b.head)
	b.result, b.err = b.cmd.Apply(g.reader, at, &g.writes)
}

// request is a command on its way, with the cell its caller waits at.
type request[R any] struct {
	body[R]
	after []func(R)
	reply *flow.Reply[R]
}

func newRequest[R any](ctx context.Context, now int64, l Lane, c Command[R], after []func(R)) *request[R] {
	return &request[R]{newBody(ctx, now, l, c), after, flow.NewReply[R]()}
}

func (q *request[R]) claim() bool { return q.reply.Claim() }

func (q *request[R]) finish() {
	for _, fn := range q.after {
		fn(q.result)
	}
}

func (q *request[R]) answer() {
	if q.err != nil {
		q.reply.Fail(q.err)
		return
	}
	q.reply.Answer(q.result)
}

func (q *request[R]) fail(err error) { q.reply.Fail(err) }
