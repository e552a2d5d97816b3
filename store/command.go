package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"ronbox/appliance/flow"
)

// Stamp is the position of a command in the life of the file. Both fields strictly increase. A
// refused command does not use up a Seq.
type Stamp struct {
	Seq uint64
	At  int64 // committer's time, Unix ns
}

// Command is a mutation: plain, immutable data, decided before it is queued. Applying the same
// commands in the same order to the same state results in the same state. A command may have a
// method Size() int that returns its encoded size in bytes; the default is 1 KiB.
type Command[R any] interface {
	// Kind returns a stable, versioned name such as "index.put_name/1". The part before the dot is
	// the service that owns the buckets of the command.
	Kind() string
	// Apply reads through r and fills w. The writes are merged into the transaction only if Apply
	// returns nil. Apply must not use a clock, randomness, map order or I/O.
	Apply(r Reader, at Stamp, w *Writes) (R, error)
}

// Group is the in-memory state of an engine that follows the file. Begin opens a tentative layer
// before a group of commands, Committed publishes it after the sync, Aborted drops it. The
// committer calls them; they must not block. A panic in one ends the process.
type Group interface {
	Begin()
	Committed()
	Aborted()
}

// Lane is an input queue of the committer. Each group takes Control commands first, then Work, then
// at most one Bulk command.
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
		"node commands: keys, revocations, restore",
		"commands of the engines",
		"sweeps and expiry: at most one a group",
	}
	return flow.Spec{
		Service:   ownService,
		Name:      l.String(),
		Kind:      flow.KindQueue,
		Cap:       [lanes]int{64, 2048, 16}[l],
		Policy:    flow.WaitDeadline,
		Producers: producers,
		Consumers: []string{"committer"},
		Doc:       doc[l],
	}
}

// Commit submits c and returns its result once it is applied and synced. It blocks until ctx ends,
// first for a place in the lane and then for the answer. The after functions run after the sync, in
// order, before any caller of the group is answered; they must not block. Commit returns the error
// of Apply unchanged. ErrTimeout, the cause of ctx, ErrClosed, ErrRestored, ErrFull, ErrInternal,
// ErrNotLeader, ErrTooLarge and ErrPoisoned mean that the command was not written. ErrUnknown,
// which a PoisonError may also be, means that the command may have been written. In a cluster it
// also means that another node may write it: the same command with the same key, sent to the node
// that leads, gets the outcome.
func Commit[R any](ctx context.Context, s *Store, l Lane, c Command[R], after ...func(R)) (R, error) {
	return submit(ctx, s, l, c, true, after)
}

// TryCommit is Commit, but returns ErrBusy if the lane is full.
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

// admit returns an error if the store cannot accept commands for the lane.
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
	if !s.accepts() {
		return ErrNotLeader
	}
	if l != Control && s.restored.Load() {
		return ErrRestored
	}
	if l == Work {
		return s.room.cause()
	}
	return nil
}

// enqueue puts q into its lane. If wait is set it blocks for a place until ctx ends.
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
	case !s.accepts():
		return ErrNotLeader
	}
	return fmt.Errorf("lane %s: %w", l, err)
}

// Waited converts and counts the error of waiting for a command. left reports whether ctx ended
// before the command was taken. An error of Apply is returned unchanged.
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

// late returns the error of a command that was dropped before anything was written.
func (s *Store) late(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(cause, context.DeadlineExceeded) {
		s.metrics.timeout(1)
		return fmt.Errorf("%w: %w", ErrTimeout, cause)
	}
	return fmt.Errorf("commit not begun: %w", cause)
}

// head is the part of a request that does not depend on the result type.
type head struct {
	ctx     context.Context
	kind    string
	lane    Lane
	size    int
	queued  int64 // ns on the store's clock
	claimed int64 // ns on the store's clock; set by the committer before it answers
	err     error // returned by Apply; owned by the committer
}

func (h *head) header() *head { return h }

// owner returns the service of the command.
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

// job is a request of any result type, as the committer handles it.
type job interface {
	header() *head
	claim() bool              // false: the caller has stopped waiting
	apply(g *group, at Stamp) // fills the Writes of the group and sets header().err
	finish()                  // calls the after functions
	answer()                  // answers with the result of apply
	fail(err error)
}

// body is a command and its result.
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

// request is a submitted command and the reply that its caller waits for.
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

// Hand submits c as Commit does but does not wait for the result. It blocks until c has a place in
// the lane or ctx ends. If Hand returns nil, ended is called exactly once with the result, by the
// committer or by the goroutine that closes the lane; it must not block. Once c has its place it
// cannot be withdrawn, even if ctx ends. If Hand returns an error, which is one of those of Commit,
// ended is not called. A caller that waits for ended converts the error of that wait with
// [Store.Waited].
func Hand[R any](ctx context.Context, s *Store, l Lane, c Command[R], ended func(R, error)) error {
	if err := s.admit(ctx, l); err != nil {
		return err
	}
	return s.enqueue(ctx, &handed[R]{body: newBody(context.WithoutCancel(ctx), s.mono(), l, c), s: s, ended: ended},
		true)
}

// handed is a submitted command without a waiting caller. The goroutine that has taken it out of
// its lane owns it.
type handed[R any] struct {
	body[R]
	s     *Store
	ended func(R, error) // nil once it was called
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
	q.notify(q.result, nil)
}

func (q *handed[R]) fail(err error) {
	var none R
	q.notify(none, err)
}

func (q *handed[R]) notify(out R, err error) {
	if ended := q.ended; ended != nil {
		q.ended = nil // before the call, because ended may panic
		ended(out, err)
	}
}

// Foreign returns a reader of the buckets of another service, in the transaction of r, so that a
// command can decide by the state of two services. It reads what commands before this one have
// written. Nothing can be written through it.
func Foreign(r Reader, service string) Reader {
	if tr, ok := r.(*txReader); ok && tr.confined {
		return foreign{tr, service}
	}
	return r
}

// foreign is a txReader that acts for another service.
type foreign struct {
	r       *txReader
	service string
}

// act lets the reader act for the other service until the returned function is called.
func (f foreign) act() (end func()) {
	owner := f.r.owner
	f.r.owner = f.service
	return func() { f.r.owner = owner }
}

// Get implements Reader.
func (f foreign) Get(b *Bucket, key []byte) []byte {
	defer f.act()()
	return f.r.Get(b, key)
}

// Range implements Reader.
func (f foreign) Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	defer f.act()()
	return f.r.Range(b, from, to)
}

// RangeBack implements Reader.
func (f foreign) RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	defer f.act()()
	return f.r.RangeBack(b, from, to)
}
