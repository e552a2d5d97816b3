package lookup

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// Names in metrics and in the catalogue.
const (
	service = "index"
	worker  = "worker"
)

// Retries of one lookup, over all its legs: after a transient failure the next peer is asked, or
// the same one if all others were asked.
const (
	maxRetries = 3
	retryLeast = 50 * time.Millisecond // shortest pause before a retry; the longest is twice as long
	retryRoom  = 25 * time.Millisecond // least time between the pause and the deadline; with less there is no retry
)

func retryDelay(int) time.Duration { return retryLeast + rand.N(retryLeast) }

// askLimit is the number of providers that a peer is asked for: the size of one document of a
// Delegated Routing endpoint.
const askLimit = 100

// Causes of the end of the context of a lookup's legs.
var (
	errSettled  = errors.New("lookup is settled")
	errDeadline = errors.New("lookup deadline")
)

// lookup asks peers for one key in two waves: alpha peers at once, and beta others if no peer of
// the first wave has given a good answer at the hedge time or if all have failed. For a name, the
// first good answer settles the lookup. For a content id the good answers are merged: the lookup is
// settled when every peer of the wave has reported, or by the first good answer after the hedge
// time. Otherwise the deadline settles it. run joins every leg.
type lookup struct {
	*Asker
	*Pace
	Call
	done   func(Outcome) // called once, without mu
	begun  time.Time
	asOf   time.Time     // wall clock at which all answers count as received
	second chan struct{} // closed when the second wave begins
	end    context.CancelCauseFunc

	mu       sync.Mutex                // a leaf: it guards the fields below
	next     int                       // index into Order of the next peer
	asked    int                       // number of asked peers
	refused  int                       // number of peers with an open breaker
	waiting  int                       // legs of the current wave that have not reported, except those of late peers
	left     [2]int                    // running legs of each wave
	calls    map[*peers.Peer]time.Time // beginnings of the running calls
	heard    []heard                   // good answers
	without  []*peers.Peer             // peers that answered "not found"
	denied   bool                      // the sole owner answered "not found"
	failed   int                       // calls without an answer
	retries  int
	past     bool // the hedge time has passed
	hedged   bool // the second wave has begun
	raced    bool // the second wave has asked a peer
	overtook bool // the second wave has won
	settled  bool
	lastErr  error
}

// heard is a good answer of one peer.
type heard struct {
	Outcome
	from *peers.Peer
	wave int
}

// run runs the watch and the legs.
func (l *lookup) run(ctx context.Context) {
	alpha, beta := l.Alpha, l.Beta
	if l.Owner != nil {
		alpha = 1 // others may hold an older record of the owner, and answer sooner
	}
	l.waiting = alpha
	l.left = [2]int{alpha, beta}
	l.second = make(chan struct{})
	l.calls = make(map[*peers.Peer]time.Time, alpha+beta)
	l.begun, l.asOf = time.Now(), l.now()
	ctx, stop := context.WithDeadlineCause(ctx, l.Deadline, errDeadline)
	defer stop()
	ctx, l.end = context.WithCancelCause(ctx)
	defer l.end(errSettled)
	_ = flow.Fan(ctx, 1+alpha+beta, func(ctx context.Context, i int) error { // no leg fails
		switch {
		case i == 0:
			l.watch(ctx)
		case i <= alpha:
			l.leg(ctx, 0)
		default:
			select {
			case <-l.second:
				l.leg(ctx, 1)
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// watch marks the hedge time as passed, and settles the lookup if its context ends first.
func (l *lookup) watch(ctx context.Context) {
	hedge := time.NewTimer(l.Hedge)
	defer hedge.Stop()
	select {
	case <-hedge.C:
		l.mu.Lock()
		l.past = true
		l.mu.Unlock()
		l.step()
		<-ctx.Done()
	case <-ctx.Done():
	}
	o := Outcome{Err: flow.ErrCanceled}
	l.mu.Lock()
	over := !l.settled
	l.settled = true
	if over && errors.Is(context.Cause(ctx), errDeadline) {
		o = l.atDeadline()
	}
	l.mu.Unlock()
	if over {
		l.publish(o)
	}
}

// step settles the lookup if enough is known, or begins the second wave if it is due.
func (l *lookup) step() {
	l.mu.Lock()
	begin := !l.hedged && len(l.heard) == 0 && !l.settled && (l.past || l.waiting <= 0 && l.failed > 0)
	if begin {
		l.hedged, l.waiting = true, l.Beta
	}
	var o Outcome
	over := false
	if !l.settled {
		o, over = l.verdict()
		l.settled = over
	}
	l.mu.Unlock()
	if begin {
		close(l.second)
	}
	if over {
		l.publish(o)
	}
}

// leg asks one peer after another until one has answered. For a name, the answer of one peer does
// not predict those of others, so the leg continues while there are peers.
func (l *lookup) leg(ctx context.Context, wave int) {
	first, failed := true, (*peers.Peer)(nil)
	_ = l.retry.Do(ctx, func(ctx context.Context) error { // ask counts failures
		err := errNobody
		for again := failed; ; again = nil {
			p, pass := l.take(again)
			if p == nil {
				break
			}
			if p.IsLate(l.asOf) {
				l.report(&first, wave)
			}
			got := l.ask(ctx, p, pass, wave)
			if retryable(got) {
				failed = p
			}
			if got == nil || !retryable(err) { // keep an error that allows a retry
				err = got
			}
			if got == nil || !l.IsName() || ctx.Err() != nil || l.isDenied() {
				break
			}
		}
		l.report(&first, wave)
		if retryable(err) && !l.mayRetry() {
			return errSpent
		}
		return err
	})
	l.mu.Lock()
	l.left[wave]--
	l.mu.Unlock()
	if ctx.Err() == nil { // otherwise watch publishes the outcome
		l.step()
	}
}

// Errors that end a leg, beside those of peers.
var (
	errNobody = errors.New("no peer is left to ask")
	errSpent  = errors.New("no retry is left")
)

// retryable reports whether a retry of a failed call may succeed soon.
func retryable(err error) bool {
	return errors.Is(err, name.ErrTransient) || errors.Is(err, name.ErrNoRoute)
}

// take returns the next peer with a breaker that lets a call through. After the last peer it
// returns again, the peer that this leg has asked before.
func (l *lookup) take(again *peers.Peer) (*peers.Peer, flow.Pass) {
	for p := l.nextPeer(); p != nil; p = l.nextPeer() {
		if pass, ok := p.Breaker.Permit(); ok {
			l.count(&l.asked)
			return p, pass
		}
		l.count(&l.refused)
		p.Refused(1)
	}
	if again != nil {
		if pass, ok := again.Breaker.Permit(); ok {
			return again, pass
		}
	}
	return nil, flow.Pass{}
}

// nextPeer returns the next peer in order. It returns nil after the last peer or once the lookup is
// settled.
func (l *lookup) nextPeer() *peers.Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.next == len(l.Order) {
		return nil
	}
	l.next++
	return l.Order[l.next-1]
}

func (l *lookup) count(n *int) {
	l.mu.Lock()
	*n++
	l.mu.Unlock()
}

// mayRetry takes one of the retries of the lookup, and reports whether one was left.
func (l *lookup) mayRetry() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.retries == maxRetries || time.Until(l.Deadline) < 2*retryLeast+retryRoom {
		return false
	}
	l.retries++
	return true
}

// report notes that a leg has an outcome, or that the lookup does not wait for its peer.
func (l *lookup) report(first *bool, wave int) {
	l.mu.Lock()
	if *first && (wave == 1) == l.hedged {
		l.waiting--
	}
	*first = false
	l.mu.Unlock()
	l.step()
}

// book records the outcome of a call that the lookup has not cut off.
func (l *lookup) book(p *peers.Peer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !errors.Is(err, name.ErrNotFound):
		l.failed++
		l.lastErr = err
	case !slices.Contains(l.without, p):
		l.without = append(l.without, p)
		l.denied = l.denied || l.Sole && p == l.Owner
	}
}

func (l *lookup) isDenied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.denied
}

// addAnswer adds a good answer.
func (l *lookup) addAnswer(o Outcome, p *peers.Peer, wave int) {
	l.mu.Lock()
	if !l.settled {
		l.heard = append(l.heard, heard{o, p, wave})
	}
	l.mu.Unlock()
	l.step()
}

// publish calls done with the outcome and ends the other legs. It is called once.
func (l *lookup) publish(o Outcome) {
	l.mu.Lock()
	last := len(l.heard) - 1
	raced := l.raced && last >= 0
	l.overtook = raced && l.heard[last].wave == 1
	l.noteLate()
	win := l.overtook
	l.mu.Unlock()
	switch {
	case win:
		l.m.won(1)
	case raced:
		l.m.lost(1)
	}
	l.m.lookupMS(float64(time.Since(l.begun)) / float64(time.Millisecond))
	l.done(o)
	l.end(errSettled)
}
