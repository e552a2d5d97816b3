package ledger

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// maxExpire is how many holds one command ends.
const maxExpire = 256

// expire is the command that ends overdue holds, in the order of their expiry.
type expire struct {
	holds []record.TxID
	seed  uint64
}

// Kind names the command.
func (*expire) Kind() string { return "ledger.expire/1" }

// Size returns the weight of the command in its group, bytes.
func (c *expire) Size() int { return len(c.holds) * opSize }

// Apply ends the holds that are still open, and returns the number of records.
func (c *expire) Apply(r store.Reader, at store.Stamp, w *store.Writes) (int, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return 0, err
	}
	o := &Op{Code: record.OpExpire}
	var ended []record.TxID
	for _, id := range c.holds {
		if res := x.single(&action{op: o, hold: id.Seq()}, plain); res.code == record.Accepted {
			ended = append(ended, id)
		}
	}
	if len(x.raws) == 0 {
		return 0, refusal{&posted{}}
	}
	x.seal()
	b.event.Expired = ended
	w.Then(b.keep)
	return len(x.raws), nil
}

// soonest is a lower bound of the expiry of every open hold that a reader may see. One load tells a
// call whether it must end holds first. The bound may be too low: holds are captured, and groups
// fail. Then a search raises it.
type soonest struct {
	at atomic.Int64 // Unix ns; 0: unknown, as at first; never: there is no open hold

	mu      sync.Mutex // a leaf: it covers the fields below and the writes of at
	running int64      // of the holds that the running group made
	missed  int64      // of the holds that the search under way may have missed
}

// never is the expiry of no hold.
const never = math.MaxInt64

// made notes a hold of the running group.
func (s *soonest) made(expires int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.Store(min(s.at.Load(), expires))
	s.running, s.missed = min(s.running, expires), min(s.missed, expires)
}

// ended notes that the holds of the running group are published or dropped. Only the committer
// writes running.
func (s *soonest) ended() {
	if s.running == never {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = never
}

// search begins a search, which sees every published hold. One search runs at a time.
func (s *soonest) search() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed = s.running
}

// found ends a search: no hold that it saw is open and expires before next.
func (s *soonest) found(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.Store(min(next, s.missed))
}

// overdue reports whether a hold may be overdue.
func (l *Local) overdue() bool {
	at := l.books.soonest.at.Load()
	return at != never && at <= l.time()
}

// time returns the earliest stamp of the next command, Unix ns.
func (l *Local) time() int64 { return max(l.books.view.Load().At, l.now().UnixNano()) }

// expireFirst ends the holds that are overdue, before a call looks at holds or balances. It waits
// until ctx ends, and at most Config.StallAfter. If it fails, this call and later ones use the
// stored state, until the expirer has ended the holds.
func (l *Local) expireFirst(ctx context.Context) {
	if !l.overdue() || l.cannotExpire.Load() || l.ready() != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, l.reloaded.Load().StallAfter.D())
	defer cancel()
	if err := l.expire(within); err != nil && ctx.Err() == nil {
		l.cannotExpire.Store(true)
	}
}

// runExpirer ends overdue holds at each tick.
func (l *Local) runExpirer(ctx context.Context) error {
	defer l.expireTick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.expireTick.C():
		}
		l.cannotExpire.Store(l.ready() == nil && l.expire(ctx) != nil)
	}
}

// expire ends the overdue holds. One caller at a time does; the others wait for it until ctx ends.
func (l *Local) expire(ctx context.Context) error {
	select {
	case l.expiring <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.expiring }()
	for more := true; more && l.overdue(); {
		var err error
		if more, err = l.expireDue(ctx); err != nil {
			l.noticed(err)
			return err
		}
	}
	return nil
}

// expireDue ends at most maxExpire holds, and reports whether more may be due.
func (l *Local) expireDue(ctx context.Context) (more bool, err error) {
	c := &expire{seed: newSeed()}
	l.books.soonest.search()
	next, err := l.due(ctx, c)
	if err != nil {
		return false, err
	}
	if len(c.holds) > 0 {
		_, err = store.Commit(ctx, l.store, store.Bulk, c)
		var none refusal
		if err != nil && !errors.As(err, &none) {
			return false, err
		}
	}
	l.books.soonest.found(next)
	return len(c.holds) == maxExpire, nil
}

// due finds overdue holds, the earliest first, and returns a lower bound of the expiry of the
// others. Flushed holds are in the file in that order, the others in memory.
func (l *Local) due(ctx context.Context, c *expire) (next int64, err error) {
	now, soon := l.time(), int64(never)
	var fresh []tables.HoldEnd
	for _, end := range l.freshHolds(tables.HoldEnd{}) {
		if end.Expires <= now {
			fresh = append(fresh, end)
		} else {
			soon = min(soon, end.Expires)
		}
	}
	err = l.view(ctx, func(r store.Reader) error {
		ends, later := l.dueInFile(r, now)
		ends = append(slices.Clip(fresh), ends...)
		slices.SortFunc(ends, compareEnds)
		ends, next = slices.Compact(ends), min(soon, later)
		if len(ends) > maxExpire {
			ends, next = ends[:maxExpire], ends[maxExpire].Expires
		}
		c.holds = c.holds[:0]
		for _, end := range ends {
			rec, known := l.past(r).hold(end.Seq)
			if !known {
				return ErrNotFound
			}
			c.holds = append(c.holds, rec.TxID())
		}
		return nil
	})
	return next, err
}

// dueInFile finds overdue holds in the file, except those that are closed in memory, and returns a
// lower bound of the expiry of the others.
func (l *Local) dueInFile(r store.Reader, now int64) (ends []tables.HoldEnd, next int64) {
	looked := 0
	for end := range tables.HoldEnds(r, tables.HoldEnd{}) {
		if looked++; end.Expires > now || len(ends) == maxExpire || looked > 16*maxExpire {
			return ends, end.Expires
		}
		if h, known := l.books.holds.read(end.Seq); !known || h.Open() {
			ends = append(ends, end)
		}
	}
	return ends, never
}
