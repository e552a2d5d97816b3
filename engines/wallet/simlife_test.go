package wallet_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// ground is the state that survives a crash: everything that was synced.
type ground interface {
	boot(opts ...option) (*rig, ledger.Client) // starts a process; the client bypasses wallet and wire
	die()                                      // crashes the process
}

// onModel is a ground on a model of the ledger.
type onModel struct {
	t     testing.TB
	model *ledgertest.Model
	r     *rig
}

func newOnModel(t testing.TB, now func() time.Time) *onModel {
	g := &onModel{t: t, model: ledgertest.NewModel(now)}
	if err := g.model.Declare(context.Background(), "ron"); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *onModel) boot(opts ...option) (*rig, ledger.Client) {
	g.r = newRig(g.t, append([]option{on(g.model)}, opts...)...)
	return g.r.start(), g.model
}

func (g *onModel) die() {
	g.model = g.model.Reopen() // so that calls of the old process have no effect
	g.r.die()
}

// onFile is a ground on the real ledger.
type onFile struct {
	t testing.TB
	n *node
}

func (g *onFile) boot(opts ...option) (*rig, ledger.Client) {
	if g.n == nil {
		g.n = newNode(g.t, opts...)
	} else {
		g.n.boot(g.t, opts...)
	}
	return g.n.rig, g.n.local
}

func (g *onFile) die() { g.n.die() }

// moment is a boundary of a command at which a process may crash.
type moment int

const (
	never        moment = iota
	beforeApply         // the ledger has not applied the command
	beforeAnswer        // applied and synced, but not answered
	afterAnswer         // the wallet has answered
)

// life is one process.
type life struct {
	no  int
	r   *rig
	has ledger.Client   // bypasses wallet and wire
	ctx context.Context // canceled when the process ends
	end context.CancelFunc
}

// begin starts a process on the ground. It has an empty cache, empty queues, no reservations and no
// flights, and a new wire.
func (s *sim) begin() {
	s.lives++
	l := &life{no: s.lives}
	l.ctx, l.end = context.WithCancel(context.Background())
	opts := []option{
		s.configure,
		by(s.wall.Now),
		func(r *rig) { r.hasty = true },
		over(func(c ledger.Client) ledger.Client {
			faults := s.faults
			faults.Seed += uint64(l.no) << 32
			return ledgertest.NewFaulty(&hooked{Client: c, commit: s.mortal(l)}, faults)
		}),
	}
	l.r, l.has = s.ground.boot(opts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = l
	close(s.up)
}

// mortal returns a Commit that crashes the process at the boundaries chosen by s.crashes.
func (s *sim) mortal(l *life) func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
	return func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
		if l.ctx.Err() != nil {
			return nil, unavailable(true)
		}
		when := s.fate(ops)
		if when.ends == beforeApply {
			s.crash(l)
			return nil, unavailable(true)
		}
		time.Sleep(when.takes) // makes the seed, not the scheduler, decide the order of two commands
		outs, err := next.Commit(ctx, ops)
		switch {
		case when.ends == beforeAnswer:
			s.crash(l)
		case when.ends == afterAnswer:
			s.later(func() {
				time.Sleep(time.Nanosecond) // until all effects of the answer are complete
				s.crash(l)
			})
		}
		if l.ctx.Err() != nil {
			return nil, unavailable(true)
		}
		return outs, err
	}
}

// fate holds the crash point and the duration of a command.
type fate struct {
	ends  moment
	takes time.Duration
}

// fate draws the fate of a command from its first key and the number of times it was sent, so that
// the order of requests does not matter.
func (s *sim) fate(ops []ledger.Op) (is fate) {
	key := ops[0].Dedupe.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[key]++
	is.takes = s.instant("takes "+key, s.sent[key])
	if !s.calm {
		is.ends = s.crashes(key, s.sent[key])
	}
	return is
}

// instant returns a random duration of at most a microsecond, which only affects the order of
// events.
func (s *sim) instant(label string, n int) time.Duration {
	return time.Duration(1 + s.dice(label, n).Int64N(int64(time.Microsecond)))
}

// crash ends a process once. Another process starts after a while.
func (s *sim) crash(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ctx.Err() != nil || s.calm {
		return
	}
	s.crashed++
	l.end()
	s.now, s.up = nil, make(chan struct{})
	d := s.dice("down", l.no)
	s.after.Go(func() {
		s.ground.die()
		time.Sleep(time.Duration(d.Int64N(int64(time.Second))))
		s.begin()
	})
}

// later runs fn in a goroutine that settle waits for.
func (s *sim) later(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.calm {
		s.after.Go(fn)
	}
}

// alive returns the running process and waits for one if necessary. Each waiter continues at a
// different instant.
func (s *sim) alive(who string) *life {
	for {
		s.mu.Lock()
		l, up := s.now, s.up
		s.mu.Unlock()
		if l != nil {
			return l
		}
		<-up
		time.Sleep(s.instant("up "+who, 0))
	}
}

// settle stops further crashes and returns the running process.
func (s *sim) settle() *life {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	s.after.Wait()
	return s.alive("")
}

// dice returns the random source of a label, independent of all earlier draws.
func (s *sim) dice(label string, n int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(label))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()+uint64(n)))
}

// drawn returns a plan that crashes the process at a random boundary of a share of the commands.
func (s *sim) drawn(share float64) func(string, int) moment {
	return func(key string, n int) moment {
		if d := s.dice("crash "+key, n); d.Float64() < share {
			return beforeApply + moment(d.IntN(3))
		}
		return never
	}
}
