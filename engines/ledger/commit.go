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

// Prepare checks op and looks up all that its command needs; see Client. It waits until ctx ends.
func (l *Local) Prepare(ctx context.Context, op *Op) (*Prepared, error) {
	if err := checkOp(0, op); err != nil {
		return nil, err
	}
	switch err := l.begin(ctx); {
	case errors.Is(err, ErrSafeMode):
		return l.prepareUnsafe(ctx, op)
	case err != nil:
		return nil, err
	}
	defer l.calls.leave()
	p := &Prepared{Op: op}
	s := l.resolver(ctx)
	err := s.one(&p.action, op, nil)
	if err == nil {
		err = s.readAll()
	}
	if err != nil {
		return nil, l.unavailable(err)
	}
	p.Known, p.touched, p.size = p.action.known, s.touched, s.size
	return p, nil
}

// prepareUnsafe answers op by its key or its reference, in safe mode: nothing can be submitted.
func (l *Local) prepareUnsafe(ctx context.Context, op *Op) (*Prepared, error) {
	out, found, err := l.Find(ctx, op.Dedupe, op.Fingerprint, l.now().UnixNano()-int64(op.TTL))
	if err == nil && !found && op.Reference != "" {
		out, found, err = l.doneBefore(ctx, op)
	}
	if err != nil || !found {
		return nil, ErrSafeMode
	}
	return &Prepared{Op: op, Known: &out}, nil
}

// Submit queues prepared ops as one command; see Client.
func (l *Local) Submit(ctx context.Context, ops []*Prepared) (Pending, error) {
	s := &resolver{}
	actions, n := make([]action, len(ops)), 0
	for i, p := range ops {
		if n += 1 + len(p.Op.Ops); n > MaxOps {
			return nil, tooMany(i)
		}
		if p.Known == nil && p.action.op == nil {
			panic("ledger: an op that was not prepared by this ledger is submitted")
		}
		actions[i] = p.action
		actions[i].op, actions[i].known = p.Op, p.Known
		if p.Known == nil {
			s.touched, s.size = append(s.touched, p.touched...), s.size+p.size
		}
	}
	sent, err := l.send(ctx, s, actions)
	if err != nil {
		return nil, err
	}
	return sent, nil
}

// Commit applies independent ops in order; see Client. It waits until ctx ends.
func (l *Local) Commit(ctx context.Context, ops []Op) ([]Outcome, error) {
	if err := checkOps(ops); err != nil || len(ops) == 0 {
		return nil, err
	}
	s, actions, err := l.resolve(ctx, ops)
	if err != nil {
		return nil, err
	}
	sent, err := l.send(ctx, s, actions)
	if err != nil {
		return nil, err
	}
	return sent.Wait(ctx)
}

// resolve makes the actions of a call.
func (l *Local) resolve(ctx context.Context, ops []Op) (*resolver, []action, error) {
	if err := l.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer l.calls.leave()
	s := l.resolver(ctx)
	actions, err := s.resolve(ops)
	if err != nil {
		return nil, nil, l.unavailable(err)
	}
	return s, actions, nil
}

// sent is a call on its way.
type sent struct {
	l       *Local
	actions []action
	c       *post // of the actions that are not known; nil: there are none
	begun   time.Time
	stray   bool // a key of c was on its way in an earlier command
}

// send queues the command of the actions that are not known. The caller of a sent waits for it.
func (l *Local) send(ctx context.Context, s *resolver, actions []action) (*sent, error) {
	todo := make([]action, 0, len(actions))
	for i := range actions {
		if actions[i].known == nil {
			todo = append(todo, actions[i])
		}
	}
	if len(todo) == 0 {
		return &sent{l: l, actions: actions}, nil
	}
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	out, err := l.queue(ctx, l.post(s, todo, nil))
	if err != nil {
		return nil, err
	}
	out.actions = actions
	return out, nil
}

// queue hands c to the committer. Until Wait returns, the call counts as under way; begin has
// admitted it.
func (l *Local) queue(ctx context.Context, c *post) (*sent, error) {
	out := &sent{l: l, c: c, begun: time.Now(), stray: l.strays.has(c)}
	if err := store.Hand[*posted](ctx, l.store, store.Work, c, c.ended); err != nil {
		defer l.calls.leave()
		return nil, out.failed(err)
	}
	return out, nil
}

// Wait returns the outcomes of the call.
func (p *sent) Wait(ctx context.Context) ([]Outcome, error) {
	if p.c == nil {
		return p.l.outcomes(ctx, p.actions, nil)
	}
	defer p.l.calls.leave()
	out, err := p.posted(ctx)
	if err != nil {
		return nil, err
	}
	return p.l.outcomes(ctx, p.actions, out)
}

// posted waits until the command has ended.
func (p *sent) posted(ctx context.Context) (*posted, error) {
	out, err := p.c.reply.Wait(ctx)
	if err != nil {
		return nil, p.failed(p.l.store.Waited(ctx, p.c.Kind(), err, p.c.reply.Canceled()))
	}
	p.l.m.latency(time.Since(p.begun).Seconds())
	p.l.m.count(p.c, out)
	return out, nil
}

// failed words an error of the store about the command.
func (p *sent) failed(err error) error {
	l := p.l
	l.m.latency(time.Since(p.begun).Seconds())
	stray := p.stray || l.strays.has(p.c)
	if errors.Is(err, store.ErrUnknown) {
		l.strays.add(p.c)
	}
	if stray && !errors.Is(err, store.ErrInternal) { // an earlier call under the same key may have done it
		return &UnavailableError{Unknown: true, Cause: err}
	}
	return l.unavailable(err)
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

// post returns the command of actions that s has resolved; once is that of a settlement, or nil.
func (l *Local) post(s *resolver, actions []action, once *once) *post {
	cfg := l.live()
	return &post{
		ops: actions, once: once, size: s.size, touched: s.touched, seed: newSeed(), strays: l.strays,
		flush: flushRule{rows: cfg.FlushSlice, dirtyMax: cfg.DirtyMaxAccounts}, reply: flow.NewReply[*posted](),
	}
}

// newSeed is where a command's random bits come from.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return seedOf(b)
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
	case errors.Is(err, store.ErrUnknown):
		return &UnavailableError{Unknown: true, Cause: err}
	case errors.Is(err, store.ErrPoisoned): // no later call finds out what became of the keys that are on their way
		return &UnavailableError{Unknown: l.strays.len() > 0, Cause: err}
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
	s, actions, err := l.resolve(ctx, ops)
	if err != nil {
		return Outcome{}, err
	}
	if err := l.begin(ctx); err != nil {
		return Outcome{}, err
	}
	sent, err := l.queue(ctx, l.post(s, actions, hashOnce(&o)))
	if err != nil {
		return Outcome{}, err
	}
	sent.actions = []action{{op: &Op{Code: record.OpBatch, Atomic: true}, inner: actions}}
	outs, err := sent.Wait(ctx)
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
		if ops[i].Reference != "" {
			return &OpError{Index: i, Field: "reference", Reason: "an op of a settlement has none"}
		}
	}
	return nil
}

// The purposes for which permanent ids and guards are hashed. They need no key: who names them is
// the node itself, and an import into a ledger with another key must find them again.
var (
	onceIDs     = b3.Derive("ronbox ledger once id v1")
	onceGuards  = b3.Derive("ronbox ledger once guard v1")
	onceOwners  = b3.Derive("ronbox ledger once owner v1")
	onceDivider = []byte{0}
)

func hashOnce(o *Once) *once {
	h := &once{digest: o.Digest, principal: hash8(o.Principal)}
	h.key = tables.OnceKey{
		Key: digest16(onceIDs.Sum([]byte{byte(len(o.Domain))}, []byte(o.Domain), onceDivider, []byte(o.ID))),
	}
	if o.Guard.Key != "" {
		h.guard = record.Guard{
			Key:   digest16(onceGuards.Sum([]byte(o.Guard.Key))),
			Owner: digest16(onceOwners.Sum([]byte(o.Guard.Owner))),
		}
	}
	return h
}

// DeclareAssets declares the assets that are not declared yet.
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
