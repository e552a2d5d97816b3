package wallet

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// ground is what outlives a process: all that was synced.
type ground interface {
	boot(opts ...option) (*rig, ledger.Client) // a process begins; what it stands on, past wallet and wire
	die()                                      // and ends, abruptly
}

// onModel is a model of the ledger.
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
	g.model = g.model.Reopen() // so that what the old process still asks reaches nothing
	g.r.die()
}

// onFile is the ledger itself.
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

// moment is a boundary of a command at which a process may end.
type moment int

const (
	never        moment = iota
	beforeApply         // the ledger has not done it
	beforeAnswer        // it is done and synced, and nobody was told
	afterAnswer         // the wallet has answered
)

// life is one process.
type life struct {
	no  int
	r   *rig
	has ledger.Client   // past wallet and wire
	ctx context.Context // ends with it
	end context.CancelFunc
}

// begin starts a process over what is there. Its reservations, flights, caches and queues are new, and so is its wire.
func (s *sim) begin() {
	s.lives++
	l := &life{no: s.lives}
	l.ctx, l.end = context.WithCancel(context.Background())
	opts := []option{s.configure, by(s.wall.now), func(r *rig) { r.hasty = true }, over(func(c ledger.Client) ledger.Client {
		faults := s.faults
		faults.Seed += uint64(l.no) << 32
		return ledgertest.NewFaulty(&hooked{Client: c, commit: s.mortal(l)}, faults)
	})}
	l.r, l.has = s.ground.boot(opts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = l
	close(s.up)
}

// mortal has a process end at the boundaries of its commands that the plan says.
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
		time.Sleep(when.takes) // so that of two commands it is the seed that says which is first, and not the scheduler
		outs, err := next.Commit(ctx, ops)
		s.wall.saw(outs)
		switch {
		case when.ends == beforeAnswer:
			s.crash(l)
		case when.ends == afterAnswer:
			s.later(func() {
				time.Sleep(time.Nanosecond) // until all that the answer sets going has come to rest
				s.crash(l)
			})
		}
		if l.ctx.Err() != nil {
			return nil, unavailable(true)
		}
		return outs, err
	}
}

// fate is what is in store for a command.
type fate struct {
	ends  moment
	takes time.Duration
}

// fate draws that of a command by how often its first request was sent, so that the order in which requests come does not matter.
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

// instant is a drawn moment, too short to matter but for what comes first.
func (s *sim) instant(label string, n int) time.Duration {
	return time.Duration(1 + s.dice(label, n).Int64N(int64(time.Microsecond)))
}

// crash ends a process, once. Another one comes up after a while.
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

// later has fn done beside all else, before the run is settled.
func (s *sim) later(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.calm {
		s.after.Go(fn)
	}
}

// alive is the process that runs, once one does; of those who wait for it each comes at a moment of its own.
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

// settle has no more crashes come.
func (s *sim) settle() *life {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	s.after.Wait()
	return s.alive("")
}

// dice are those of one question, whatever was asked before it.
func (s *sim) dice(label string, n int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(label))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()+uint64(n)))
}

// drawn is a plan that ends the process with a share of the commands, at any of their boundaries.
func (s *sim) drawn(share float64) func(string, int) moment {
	return func(key string, n int) moment {
		if d := s.dice("crash "+key, n); d.Float64() < share {
			return beforeApply + moment(d.IntN(3))
		}
		return never
	}
}
