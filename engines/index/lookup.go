package index

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"ronbox/appliance/flow"
)

// Retries of one lookup, over all its legs: after a failure in passing the next peer is asked, or the same if none is left.
const (
	maxRetries = 3
	retryLeast = 50 * time.Millisecond // pause before a retry, drawn up to twice as long
	retryRoom  = 25 * time.Millisecond // left of the deadline behind the pause, else there is no retry
)

func retryDelay(int) time.Duration { return retryLeast + rand.N(retryLeast) }

// askLimit is how many providers a peer is asked for: what a Delegated Routing endpoint gives in one document.
const askLimit = 100

// Causes that end the context of a lookup's legs.
var (
	errSettled  = errors.New("lookup is settled")
	errDeadline = errors.New("lookup deadline")
)

// outcome is how the peers were of use: an entry with found or without, or an error.
type outcome struct {
	entry *entry
	ttl   time.Duration
	until int64 // the first signed expiry, Unix ms; 0: none
	err   error
}

// lookup asks peers for one key, in two waves: alpha peers at once and, if they have given no good answer within the hedge time or all have
// failed, beta others. The first good answer settles it, the deadline does else. Every leg is joined by run.
type lookup struct {
	e     *Engine
	s     *settings
	j     *job
	done  func(outcome) // called once, with mu not held
	order []*peer
	begun time.Time
	hedge context.CancelFunc // starts the second wave before its time
	end   context.CancelCauseFunc

	mu       sync.Mutex // a leaf; guards all below
	next     int        // in order
	asked    int        // peers that were asked
	refused  int        // peers whose breaker was open
	waiting  int        // legs of the first wave that have said nothing yet
	left     [2]int     // legs of either wave that have not ended
	empty    int        // answers that know nothing
	failed   int        // calls that gave no answer
	retries  int
	hedged   bool // the second wave runs
	raced    bool // and has asked somebody
	overtook bool // and won
	settled  bool
	lastErr  error
}

// run asks and returns once every leg has ended. done is called as soon as the outcome is known, which a leg that ignores the end of its
// context does not delay.
func (l *lookup) run(ctx context.Context) {
	alpha, beta := l.s.DHT.Alpha, l.s.DHT.Beta
	l.waiting, l.left, l.begun = alpha, [2]int{alpha, beta}, time.Now()
	ctx, stop := context.WithDeadlineCause(ctx, l.j.deadline, errDeadline)
	defer stop()
	ctx, l.end = context.WithCancelCause(ctx)
	defer l.end(errSettled)
	wave, hedge := context.WithTimeout(ctx, l.s.hedge)
	defer hedge()
	l.hedge = hedge
	_ = flow.Fan(ctx, 1+alpha+beta, func(ctx context.Context, i int) error { // no leg fails
		switch {
		case i == 0:
			l.watch(ctx, wave)
		case i <= alpha:
			l.leg(ctx, 0)
		default:
			<-wave.Done()
			if ctx.Err() == nil {
				l.leg(ctx, 1)
			}
		}
		return nil
	})
}

// watch begins the second wave and settles the lookup when its context ends first.
func (l *lookup) watch(ctx, wave context.Context) {
	<-wave.Done()
	if ctx.Err() == nil {
		l.mu.Lock()
		l.hedged = true
		o, over := l.empties()
		l.mu.Unlock()
		if over {
			l.settle(o)
		}
	}
	<-ctx.Done()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline):
		l.settle(outcome{err: ErrTimeout})
	case !errors.Is(cause, errSettled):
		l.settle(outcome{err: flow.ErrCanceled})
	}
}

// leg asks one peer after another until one has answered.
func (l *lookup) leg(ctx context.Context, wave int) {
	first, asked := true, (*peer)(nil)
	_ = l.e.retry.Do(ctx, func(ctx context.Context) error { // what failed is counted by ask
		err := errNobody
		for {
			p, pass := l.take(asked)
			if p == nil {
				break
			}
			asked = p
			if err = l.ask(ctx, p, pass, wave); !errors.Is(err, ErrNotFound) || !l.j.isName() {
				break
			}
			asked = nil // that a peer does not know a name says nothing of the others
		}
		l.note(err, &first, wave)
		if retryable(err) && !l.mayRetry() {
			return errSpent
		}
		return err
	})
	l.ended(wave)
}

// What ends a leg beside a peer's error.
var (
	errNobody = errors.New("no peer is left to ask")
	errSpent  = errors.New("no retry is left")
)

// retryable reports whether a call that failed so may succeed a little later.
func retryable(err error) bool { return errors.Is(err, ErrTransient) || errors.Is(err, ErrNoRoute) }

// take gives the next peer whose breaker lets a call through, and when none is left the one that this leg asked before.
func (l *lookup) take(again *peer) (*peer, flow.Pass) {
	for p := l.following(); p != nil; p = l.following() {
		if pass, ok := p.breaker.Permit(); ok {
			l.count(&l.asked)
			return p, pass
		}
		l.count(&l.refused)
		p.refused(1)
	}
	if again != nil {
		if pass, ok := again.breaker.Permit(); ok {
			return again, pass
		}
	}
	return nil, flow.Pass{}
}

// following is the next peer in the order; nil behind the last, and once the lookup is settled.
func (l *lookup) following() *peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.next == len(l.order) {
		return nil
	}
	l.next++
	return l.order[l.next-1]
}

func (l *lookup) count(n *int) {
	l.mu.Lock()
	*n++
	l.mu.Unlock()
}

// mayRetry takes one of the lookup's retries.
func (l *lookup) mayRetry() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.retries == maxRetries || time.Until(l.j.deadline) < 2*retryLeast+retryRoom {
		return false
	}
	l.retries++
	return true
}

// ask makes one call and books it. It returns nil for a good answer, ErrNotFound for an empty one.
func (l *lookup) ask(ctx context.Context, p *peer, pass flow.Pass, wave int) error {
	begun := time.Now()
	if wave == 1 {
		l.mu.Lock()
		l.raced = true
		l.mu.Unlock()
	}
	l.e.m.legs.Add(1)
	o, err := l.call(ctx, p)
	l.e.m.legs.Add(-1)
	switch {
	case err == nil:
		p.settle(pass, flow.Succeeded, nil)
		l.won(o, wave == 1)
		return nil
	case errors.Is(err, ErrNotFound):
		p.settle(pass, flow.Succeeded, nil)
		return err
	case ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), errDeadline) && time.Since(begun) >= l.s.fair:
		err = ErrPeerTimeout
	case l.overtaken(time.Since(begun)):
		err = errOvertaken
	default: // it lost a race, had too little time, or the node stops: nothing is known of the peer
		p.settle(pass, flow.Neither, nil)
		return context.Cause(ctx)
	}
	p.settle(pass, flow.Failed, err)
	l.e.m.peerErrors[kindOf(err)](1)
	return err
}

// call asks p and makes an entry of its answer.
func (l *lookup) call(ctx context.Context, p *peer) (outcome, error) {
	n := &entry{key: l.j.text, fence: l.j.fence, found: true}
	if !l.j.isName() {
		list, err := p.Providers(ctx, l.j.cid, askLimit)
		if err != nil {
			return outcome{}, err
		}
		good, bad := l.e.verified(l.j.cid, list, l.s)
		l.e.m.integrity(bad)
		switch {
		case len(good) == 0 && bad > 0:
			return outcome{}, ErrInvalid
		case len(good) == 0:
			return outcome{}, ErrNotFound
		}
		n.providers = capped(merge(good, l.j.known))
		n.etag = etagOf(n.providers)
		return outcome{entry: n, ttl: l.s.ttl, until: firstExpiry(n.providers)}, nil
	}
	raw, err := p.Name(ctx, l.j.key)
	if err != nil {
		return outcome{}, err
	}
	r, signer, err := ParseNameRecord(raw, l.j.key, l.j.trusted, l.e.now())
	if err == nil {
		err = l.compare(n, &r, [32]byte(signer))
	}
	if err != nil {
		l.e.m.integrity(1)
		return outcome{}, errors.Join(ErrInvalid, err)
	}
	n.manifest, n.seq, n.record, n.etag = r.Manifest, r.Seq, raw, quoted(r.Manifest)
	return outcome{entry: n, ttl: l.s.ttl, until: r.ExpiresMS}, nil
}

// compare holds the record of a name against what was seen before. One that is older than the last by its signer, or
// says otherwise at the same seq, is refused. Another signer that says otherwise is a conflict, and no fault of
// either: two nodes are trusted for one name.
func (l *lookup) compare(n *entry, r *NameRecord, signer [32]byte) error {
	n.seen = []sighting{{signer, r.Seq, r.Manifest, r.ExpiresMS}}
	old, ok := l.e.past(l.j.text, l.e.now())
	if !ok {
		return nil
	}
	now := l.e.now().UnixMilli()
	for _, was := range old.seen {
		switch {
		case was.until <= now:
		case was.signer != signer:
			n.seen = append(n.seen, was)
			if was.manifest != r.Manifest {
				n.conflict = was.manifest
			}
		case r.Seq < was.seq || r.Seq == was.seq && r.Manifest != was.manifest:
			return &RecordError{"seq", "is behind what was seen before"}
		}
	}
	if !n.conflict.IsZero() && old.conflict.IsZero() {
		l.e.m.conflicts(1)
		l.e.log.Warn("name_conflict", "key", l.j.key.text, "manifest", r.Manifest.String(), "other", n.conflict.String(),
			"next", "two keys of index.trust sign this name: leave one of them")
	}
	return nil
}

// won settles the lookup with a good answer.
func (l *lookup) won(o outcome, beta bool) {
	l.mu.Lock()
	first, raced := !l.settled, l.raced
	l.overtook = l.overtook || first && beta
	l.mu.Unlock()
	switch {
	case !first || !raced:
	case beta:
		l.e.m.hedges["win"](1)
	default:
		l.e.m.hedges["lose"](1)
	}
	l.settle(o)
}

// overtaken reports whether a call that has been out for so long was beaten by one of the second wave, begun later. It is a failure: a peer
// that hangs would else lose each race unseen, and cost each lookup the hedge time.
func (l *lookup) overtaken(out time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overtook && out >= l.s.hedge
}

// note counts what a leg has found so far. When every leg of the first wave has said something and one has failed, the second begins at once.
func (l *lookup) note(err error, first *bool, wave int) {
	l.mu.Lock()
	switch {
	case err == nil, errors.Is(err, errNobody), errors.Is(err, errSettled):
	case errors.Is(err, ErrNotFound):
		l.empty++
	default:
		l.failed++
		l.lastErr = err
	}
	if *first && wave == 0 {
		l.waiting--
	}
	*first = false
	early := l.waiting == 0 && l.failed > 0 && !l.settled
	l.mu.Unlock()
	if early {
		l.hedge()
	}
}

// ended counts a leg out and settles the lookup if nothing is left to wait for: no leg, or none of the first wave while all it has said is that
// nobody knows.
func (l *lookup) ended(wave int) {
	l.mu.Lock()
	l.left[wave]--
	o, over := l.empties()
	if !over && l.left[0] == 0 && (l.left[1] == 0 || l.failed == 0 && !l.hedged) {
		o, over = l.final(), true
	}
	l.mu.Unlock()
	if over {
		l.settle(o)
	}
}

// empties gives up on providers that nobody knows, though a peer is still out: the second wave has nothing more to say, and two answers, or all
// that are possible, were empty. Else one dead peer would turn each miss into a timeout. Called with mu held.
func (l *lookup) empties() (outcome, bool) {
	if l.j.isName() || !l.hedged || l.left[1] > 0 || l.empty == 0 || l.empty < min(2, l.asked) {
		return outcome{}, false
	}
	return l.nothing(l.s.neg / 2), true
}

// final is the outcome once every leg has ended without a good answer. Called with mu held.
func (l *lookup) final() outcome {
	switch {
	case !time.Now().Before(l.j.deadline):
		return outcome{err: ErrTimeout}
	case l.asked == 0 && l.refused > 0:
		return outcome{err: l.e.allOpen()}
	case l.failed == 0 && (l.refused == 0 || !l.j.isName()):
		return l.nothing(l.s.neg)
	case !l.j.isName() && l.empty >= 2:
		return l.nothing(l.s.neg / 2)
	}
	return outcome{err: errors.Join(ErrUpstream, l.lastErr)}
}

// nothing is the outcome that nobody knows the key.
func (l *lookup) nothing(ttl time.Duration) outcome {
	return outcome{entry: &entry{key: l.j.text, fence: l.j.fence}, ttl: ttl}
}

// settle gives the outcome, the first time, and ends the other legs.
func (l *lookup) settle(o outcome) {
	l.mu.Lock()
	again := l.settled
	l.settled = true
	l.mu.Unlock()
	if again {
		return
	}
	l.e.m.lookupMS(float64(time.Since(l.begun)) / float64(time.Millisecond))
	l.done(o)
	l.end(errSettled)
}

// allOpen is the error when no breaker lets a call through.
func (e *Engine) allOpen() error {
	now, least := time.Now(), time.Duration(0)
	for i, p := range e.peers {
		if d := p.breaker.RetryAfter(now); i == 0 || d < least {
			least = d
		}
	}
	return &BreakerOpenError{RetryAfter: least}
}
