package ledger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger/idem"
	"ronbox/store"
)

// Prepare checks op and looks up all that its command needs; see Client. It waits until ctx ends.
func (l *Local) Prepare(ctx context.Context, op *Op) (*Prepared, error) {
	if 1+len(op.Ops) > MaxOps {
		return nil, tooMany(0)
	}
	if field, reason := op.check(false); field != "" {
		return nil, &OpError{Field: field, Reason: reason}
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
	p.Known, p.size = p.action.known, s.size
	return p, nil
}

// prepareUnsafe answers op by its key or its reference, in safe mode: nothing can be submitted.
func (l *Local) prepareUnsafe(ctx context.Context, op *Op) (*Prepared, error) {
	out, found, err := l.Find(ctx, op.Dedupe, op.Fingerprint, l.now().UnixNano()-keyTTL(op, l.settled()))
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
	c := &post{}
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
			c.size += p.size
		}
	}
	sent, err := l.send(ctx, c, actions)
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
	sent, err := l.send(ctx, &post{size: s.size}, actions)
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

// send queues c with the actions that are not known, and sets all that the caller has not. Until
// Wait returns, the call counts as in progress.
func (l *Local) send(ctx context.Context, c *post, actions []action) (*sent, error) {
	c.ops = make([]action, 0, len(actions))
	for i := range actions {
		if actions[i].known == nil {
			c.ops = append(c.ops, actions[i])
		}
	}
	if len(c.ops) == 0 {
		return &sent{l: l, actions: actions}, nil
	}
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	cfg := l.reloaded.Load()
	c.flush = flushRule{rows: cfg.FlushSlice, dirtyMax: cfg.DirtyMaxAccounts, pass: l.passFor(cfg.FlushSlice)}
	c.seed, c.strays, c.reply = newSeed(), l.strays, flow.NewReply[*posted]()
	out := &sent{l: l, actions: actions, c: c, begun: time.Now(), stray: l.strays.has(c)}
	if err := store.Hand[*posted](ctx, l.store, store.Work, c, c.ended); err != nil {
		defer l.calls.leave()
		return nil, out.failed(err)
	}
	return out, nil
}

// Wait returns the outcomes of the call.
func (p *sent) Wait(ctx context.Context) ([]Outcome, error) {
	l, c := p.l, p.c
	if c == nil {
		return l.outcomes(ctx, p.actions, nil)
	}
	defer l.calls.leave()
	out, err := c.reply.Wait(ctx)
	if err != nil {
		return nil, p.failed(l.store.Waited(ctx, c.Kind(), err, c.reply.Canceled()))
	}
	l.m.latency(time.Since(p.begun).Seconds())
	ops := 0
	for i := range c.ops {
		ops += max(1, len(c.ops[i].inner))
	}
	l.m.batchOps(float64(ops))
	return l.outcomes(ctx, p.actions, out)
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

// ready says why writes cannot be taken now, or nil.
func (l *Local) ready() error {
	switch {
	case !l.books.loaded.Load():
		return &UnavailableError{Cause: ErrLoading}
	case l.safe.Load() != nil:
		return ErrSafeMode
	}
	return nil
}

// begin admits a write, after it has ended the holds that are overdue. The caller of a write that
// is admitted must call leave.
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
	if l.keyed.Load() == nil {
		if err := l.found(ctx); err != nil {
			l.calls.leave()
			return l.unavailable(err)
		}
	}
	l.expireFirst(ctx)
	return nil
}

// newSeed returns the seed of a command's random bits.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

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
