package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Commit applies independent ops in order; see Client. It waits until ctx ends.
func (l *Local) Commit(ctx context.Context, ops []Op) ([]Outcome, error) {
	if err := checkOps(ops); err != nil || len(ops) == 0 {
		return nil, err
	}
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	defer l.calls.leave()
	s := l.resolver(ctx)
	actions, err := s.resolve(ops)
	if err != nil {
		return nil, l.unavailable(err)
	}
	done, err := l.join(ctx, actions)
	if err != nil {
		return nil, err
	}
	if done == nil {
		c := s.share(actions)
		out, err := l.submit(ctx, c)
		if err != nil {
			return nil, err
		}
		return l.outcomes(ctx, actions, func(i int) (result, *posted) { return c.result(out, i), out })
	}
	return l.commitRest(ctx, s, actions, done)
}

// commitRest submits the ops that no earlier call has under way.
func (l *Local) commitRest(ctx context.Context, s *resolver, actions []action, done []ending) ([]Outcome, error) {
	rest, place := make([]action, 0, len(actions)), make([]int, 0, len(actions))
	for i := range actions {
		if done[i].out == nil {
			rest, place = append(rest, actions[i]), append(place, i)
		}
	}
	if len(rest) > 0 {
		c := s.share(rest)
		out, err := l.submit(ctx, c)
		if err != nil && len(rest) < len(actions) {
			err = &UnavailableError{Unknown: true, Cause: err} // what an earlier call has done stands
		}
		if err != nil {
			return nil, err
		}
		for i, at := range place {
			done[at] = ending{out, c.first + i}
		}
	}
	return l.outcomes(ctx, actions, func(i int) (result, *posted) { return done[i].out.results[done[i].index], done[i].out })
}

// begin admits a write. Who gets nil calls leave.
func (l *Local) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return &UnavailableError{Cause: context.Cause(ctx)}
	}
	if err := l.ready(); err != nil {
		return err
	}
	if err := l.calls.enter(); err != nil {
		return err
	}
	if l.keyed.Load() != nil {
		return nil
	}
	if err := l.found(ctx); err != nil {
		l.calls.leave()
		return l.unavailable(err)
	}
	return nil
}

// share is what the caller has in a command, of actions that s has resolved.
func (s *resolver) share(actions []action) *share {
	return &share{ops: actions, size: s.size, touched: s.touched}
}

// post is a command that begins with one share.
func (l *Local) post(s *share) *post {
	cfg := l.live()
	return &post{
		shares: []*share{s}, ops: s.weight(), seed: newSeed(),
		flush: flushRule{rows: cfg.FlushSlice, dirtyMax: cfg.DirtyMaxAccounts},
	}
}

// newSeed is where a command's random bits come from.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return seedOf(b)
}

// submit has the committer do a share, and waits for its outcome until ctx ends. A share that is left there stays on the table of pending ops
// until it has ended.
func (l *Local) submit(ctx context.Context, s *share) (*posted, error) {
	begun := time.Now()
	out, err := l.wait(ctx, s, s.once != nil)
	if err == errApart {
		s.anew()
		out, err = l.wait(ctx, s, true)
	}
	l.m.latency(time.Since(begun).Seconds())
	if err == nil {
		l.m.count(s, out)
		return out, nil
	}
	if errors.Is(err, store.ErrUnknown) {
		l.left.add(s)
	}
	return nil, l.unavailable(err)
}

// wait hands s to the committer, in the command that waits for its turn or in one of its own, and waits for the outcome.
func (l *Local) wait(ctx context.Context, s *share, alone bool) (*posted, error) {
	s.reply = flow.NewReply[*posted]()
	if alone || !l.joint.join(s) {
		c := l.post(s)
		if !alone {
			c.in = &l.joint
		}
		if err := store.Hand[*posted](ctx, l.store, store.Work, c, c.ended); err != nil {
			return nil, err
		}
		if !alone {
			l.joint.open(c)
		}
	}
	out, err := s.reply.Wait(ctx)
	if err != nil {
		err = l.store.Waited(ctx, (*post)(nil).Kind(), err, s.reply.Canceled())
	}
	return out, err
}

// unavailable words an error of the store for the ledger's callers.
func (l *Local) unavailable(err error) error {
	switch {
	case errors.Is(err, store.ErrFull):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, store.ErrRestored):
		return fmt.Errorf("%w: %w", ErrRestored, err)
	case errors.Is(err, ErrSafeMode):
		return ErrSafeMode
	case errors.Is(err, store.ErrPoisoned): // of an op that it took along, no later call finds out
		return &UnavailableError{Unknown: errors.Is(err, store.ErrUnknown) || l.left.size.Load() > 0, Cause: err}
	case errors.Is(err, store.ErrUnknown):
		return &UnavailableError{Unknown: true, Cause: err}
	case errors.Is(err, store.ErrCorrupt):
		l.enterSafeMode(err)
		return ErrSafeMode
	case errors.Is(err, store.ErrInternal):
		return err
	}
	return &UnavailableError{Cause: err}
}

// Settle applies ops all or not at all, once for ever; see Client.
func (l *Local) Settle(ctx context.Context, o Once, ops []Op) (Outcome, error) {
	if err := checkSettle(&o, ops); err != nil {
		return Outcome{}, err
	}
	if err := l.begin(ctx); err != nil {
		return Outcome{}, err
	}
	defer l.calls.leave()
	s := l.resolver(ctx)
	actions, err := s.resolve(ops)
	if err != nil {
		return Outcome{}, l.unavailable(err)
	}
	c := s.share(actions)
	c.once = hashOnce(&o)
	out, err := l.submit(ctx, c)
	if err != nil {
		return Outcome{}, err
	}
	whole := []action{{op: &Op{Code: record.OpBatch, Atomic: true}, inner: actions}}
	outs, err := l.outcomes(ctx, whole, func(int) (result, *posted) { return out.results[0], out })
	if err != nil {
		return Outcome{}, err
	}
	return outs[0], nil
}

// maxOnceWord bounds the words that name a settlement, bytes.
const maxOnceWord = 128

func checkSettle(o *Once, ops []Op) error {
	if n := len(ops); n == 0 || n > MaxPostings {
		return &OpError{Field: "ops", Reason: fmt.Sprintf("a settlement has 1 to %d, not %d", MaxPostings, n)}
	}
	for _, w := range [...]struct{ field, word string }{{"once.domain", o.Domain}, {"once.id", o.ID}} {
		if w.word == "" || len(w.word) > maxOnceWord {
			return &OpError{Field: w.field, Reason: fmt.Sprintf("must be of 1 to %d bytes", maxOnceWord)}
		}
	}
	for i := range ops {
		if field, reason := ops[i].check(true); field != "" {
			return &OpError{Index: i, Field: field, Reason: reason}
		}
	}
	return nil
}

// The purposes for which permanent ids and guards are hashed. They need no key: who names them is the node itself, and an import into a
// ledger with another key must find them again.
var (
	onceIDs     = b3.Derive("ronbox ledger once id v1")
	onceGuards  = b3.Derive("ronbox ledger once guard v1")
	onceOwners  = b3.Derive("ronbox ledger once owner v1")
	onceDivider = []byte{0}
)

func hashOnce(o *Once) *once {
	h := &once{digest: o.Digest, principal: hash8(o.Principal)}
	h.key = tables.OnceKey{Key: digest16(onceIDs.Sum([]byte{byte(len(o.Domain))}, []byte(o.Domain), onceDivider, []byte(o.ID)))}
	if o.Guard.Key != "" {
		h.guard = record.Guard{Key: digest16(onceGuards.Sum([]byte(o.Guard.Key))), Owner: digest16(onceOwners.Sum([]byte(o.Guard.Owner)))}
	}
	return h
}

// DeclareAssets declares what is not declared yet.
func (l *Local) DeclareAssets(ctx context.Context, names []string) error {
	var ops []Op
	for _, name := range names {
		if l.books.view.Load().assets.get(name) == nil {
			ops = append(ops, Op{Code: record.OpAsset, Asset: name})
		}
	}
	_, err := l.Commit(ctx, ops)
	return err
}

// probe is a command that changes nothing.
type probe struct{}

func (probe) Kind() string { return "ledger.probe/1" }

func (probe) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	return struct{}{}, nil
}

// Probe passes through the committer and one sync.
func (l *Local) Probe(ctx context.Context) error {
	if err := l.ready(); err != nil {
		return err
	}
	if _, err := store.Commit(ctx, l.store, store.Work, probe{}); err != nil {
		return l.unavailable(err)
	}
	return nil
}
