package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// sizes of the simulation. WALLET_SIM_SEEDS and WALLET_SIM_OPS make it longer, WALLET_SIM_SEED runs one seed.
const (
	simSeeds   = 200
	simOps     = 100
	simClients = 8
)

// few is a fifth of n runs with -short, as rapid has it.
func few(n int) int {
	if testing.Short() {
		return max(1, n/5)
	}
	return n
}

func fromEnv(t *testing.T, key string, otherwise int) int {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s = %q: %v", key, text, err)
	}
	return n
}

// sim is one run: clients that each own an account send requests through a wallet over a bad wire, to a process that ends and begins again, by a
// clock that is turned, and ask again until they know.
type sim struct {
	t       *testing.T
	seed    uint64
	ops     int
	faults  ledgertest.Faults
	crashes func(key string, sent int) moment
	ground  ground
	wall    wall
	turns   int         // of the clock
	head    record.Head // at the end

	mu      sync.Mutex
	known   map[string]told // by key
	refused map[string]bool // by key
	sent    map[string]int  // how often a burst that begins with the request of a key was put to the ledger
	now     *life           // nil while none is up
	up      chan struct{}   // closed when one is
	calm    bool            // no more end
	crashed int
	lives   int            // with the one who begins them
	after   sync.WaitGroup // what goes on beside the clients
}

// told is what a client was given for a request.
type told struct {
	body []byte // the receipt, or the results of a batch
	ask  func(*life) (Answer, error)
}

func newSim(t *testing.T, seed uint64, ops int) *sim {
	s := &sim{
		t: t, seed: seed, ops: ops, known: map[string]told{}, refused: map[string]bool{}, sent: map[string]int{}, up: make(chan struct{}),
		crashes: func(string, int) moment { return never },
	}
	s.ground = newOnModel(t, s.wall.now)
	return s
}

// configure is the wallet's configuration: a day's ceiling that is met now and then, and no chance that is not of the seed.
func (s *sim) configure(r *rig) {
	r.cfg.Retry.Jitter = 0
	r.cfg.MaxAmountPerOp, r.cfg.DailyCeiling = amountOf(200), amountOf(simDaily)
}

// simDaily is what an account may spend in a day.
const simDaily = 600

// didSomething is in every answer but that of a batch of which nothing was done: of that nothing is kept.
var didSomething = []byte(`"txid"`)

// errGone is what a client gets whose process has ended: no answer.
var errGone = unavailable(true)

// ask sends a request once to the process that runs.
func (s *sim) ask(who string, send func(*life) (Answer, error)) (Answer, error) {
	l, late := s.alive(who), s.wall.mustShow()
	a, err := send(l)
	if l.ctx.Err() != nil {
		return Answer{}, errGone
	}
	if late && err == nil {
		s.t.Errorf("seed %d: done while the clock is %s behind: %s", s.seed, s.wall.lag(), a.bytes())
	}
	return a, err
}

// until asks with one key until the answer is final.
func (s *sim) until(key string, ask func(*life) (Answer, error)) (Answer, error) {
	d := s.dice("again "+key, 0)
	for n := 0; ; n++ {
		a, err := s.ask(key, ask)
		if err == nil {
			s.mu.Lock()
			s.known[key] = told{a.bytes(), ask}
			s.mu.Unlock()
			return a, nil
		}
		if isA[*ledger.Reject](err) || !CodeOf(err).Retryable {
			return a, err
		}
		if n == 500 {
			s.t.Errorf("seed %d: %s does not converge: %v", s.seed, key, err)
			return a, err
		}
		time.Sleep(50*time.Millisecond + time.Duration(d.Int64N(int64(100*time.Millisecond))))
	}
}

// once is until for a request whose first nonce is given, and is nobody else's: it is not told that the nonce was used, if it was by itself.
func (s *sim) once(key string, nonce uint64, ask func(*life) (Answer, error)) (Answer, error) {
	began := s.wall.ledgerTime()
	a, err := s.until(key, ask)
	var reject *ledger.Reject
	if errors.As(err, &reject) && reject.Code == record.NonceReused && !s.overtaken(key, nonce) && !s.lapsed(began) {
		s.t.Errorf("seed %d: %s was done, and its answer is lost", s.seed, key)
	}
	return a, err
}

// lapsed says whether a key that was first used then does not count any more.
func (s *sim) lapsed(at time.Time) bool {
	return s.wall.ledgerTime().Sub(at) >= DefaultConfig().IdempotencyTTL.D()
}

// overtaken says whether the nonce that key wanted was used by another request of its client: one that was refused, and of which the wire
// brought a copy later. An account's nonces are all its client's.
func (s *sim) overtaken(key string, nonce uint64) bool {
	client, _, _ := strings.Cut(key, "-")
	c, _ := strconv.Atoi(client[1:])
	for _, e := range s.history(name(c)) {
		if !e.Debit || e.Receipt.Nonce != nonce {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return e.Receipt.Idem != key && s.refused[e.Receipt.Idem]
	}
	return false
}

// refuse notes that a request was refused for good.
func (s *sim) refuse(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[key] = true
}

// client moves money from its account to the others', by single requests and batches, and holds some for a while.
func (s *sim) client(c int) {
	d := rand.New(rand.NewPCG(s.seed, uint64(c)))
	mine, open := name(c), []record.TxID(nil)
	for n := range s.ops / simClients {
		time.Sleep(time.Duration(d.Int64N(int64(20 * time.Millisecond))))
		key, other := fmt.Sprintf("s%d-%d", c, n), name((c+1+d.IntN(simClients-1))%simClients)
		next := s.next(mine)
		q := transfer(mine, other, 1+d.Uint64N(30), next)
		switch d.IntN(6) {
		case 0:
			ops := []Request{q, transfer(mine, other, 1+d.Uint64N(200), next+1), transfer(mine, other, 1, next+2)}
			s.batch(key, next, d.IntN(2) == 0, ops)
			continue
		case 1:
			q.Op, q.ExpiresIn = record.OpHold, time.Hour
		case 2:
			if len(open) > 0 {
				q, open = Request{Op: record.OpCapture, Hold: open[0], Amount: amountOf(1)}, open[1:]
			}
		}
		a, err := s.once(key, next, func(l *life) (Answer, error) { return l.r.e.Post(l.ctx, alice, key, "", q) })
		if err != nil {
			s.refuse(key)
		}
		if err == nil && q.Op == record.OpHold {
			open = append(open, parse(s.t, a.bytes()).id(s.t))
		}
	}
}

func (s *sim) batch(key string, next uint64, whole bool, ops []Request) {
	a, err := s.once(key, next, func(l *life) (Answer, error) { return l.r.e.Batch(l.ctx, alice, key, "", whole, ops) })
	if err != nil || !bytes.Contains(a.bytes(), didSomething) {
		s.refuse(key)
	}
	if code(err) == "IDEMPOTENCY_CONFLICT" {
		s.t.Errorf("seed %d: %s, asked again, is taken for something else", s.seed, key)
	}
}

// next asks for an account's next nonce until it is told.
func (s *sim) next(account string) uint64 {
	d := s.dice("next "+account, 0)
	for {
		l := s.alive(account)
		if a, err := l.r.e.Account(l.ctx, alice, account); err == nil && l.ctx.Err() == nil {
			return a.NextNonce
		}
		time.Sleep(50*time.Millisecond + time.Duration(d.Int64N(int64(100*time.Millisecond))))
	}
}

// fund gives the clients their money, past the wallet.
func (s *sim) fund() {
	for c := range simClients {
		outs, err := s.alive("").has.Commit(context.Background(), []ledger.Op{{
			Code: record.OpIssue, To: name(c), Asset: "ron", Amount: amountOf(500), Nonce: uint64(c + 1), Principal: "test",
		}})
		if err != nil || outs[0].Reject != nil {
			s.t.Fatalf("fund: %+v, %v", outs, err)
		}
		s.wall.saw(outs)
	}
}

// simulate is the run of one seed.
func simulate(t *testing.T, seed, ops int) (s *sim) {
	oneAfterTheOther(t, func(t *testing.T) {
		s = newSim(t, uint64(seed), ops)
		s.faults = ledgertest.Storm(s.seed)
		s.crashes = s.drawn([]float64{0, .01, .03, .08}[seed%4])
		s.run(seed/4%2 == 1)
	})
	return s
}

// oneAfterTheOther runs a bubble on one processor: what is to be done at the same nanosecond is done in the same order each time.
func oneAfterTheOther(t *testing.T, run func(*testing.T)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, run)
}

// A seed is the whole run: the same one makes the same journal, to the last nanosecond. A busy machine may take the processor away in between,
// from any of the runs: hence two that are the same are looked for among a few.
func TestSimulationRepeats(t *testing.T) {
	type run struct {
		head           record.Head
		crashed, turns int
	}
	for seed := range few(8) {
		met := map[run]bool{}
		for same := false; !same && len(met) < 6; {
			s := simulate(t, seed, simOps)
			is := run{s.head, s.crashed, s.turns}
			same, met[is] = met[is], true
			if is.head.Batches == 0 {
				t.Errorf("seed %d: an empty journal", seed)
			}
			if !same && len(met) == 6 {
				t.Errorf("seed %d: the journal is another one each time", seed)
			}
		}
	}
}

// Sizes of the simulation on a file, whose syncs take their time.
const (
	fileSeeds = 4
	fileOps   = 64
)

// The same on the ledger itself, in a file that the next process opens as the one before has left it.
func TestSimulationOnAFile(t *testing.T) {
	seeds, first := fromEnv(t, "WALLET_SIM_FILE_SEEDS", few(fileSeeds)), 0
	if one := fromEnv(t, "WALLET_SIM_FILE_SEED", -1); one >= 0 {
		first, seeds = one, 1
	}
	crashed, turns := 0, 0
	for seed := first; seed < first+seeds; seed++ {
		oneAfterTheOther(t, func(t *testing.T) {
			s := newSim(t, uint64(seed), fileOps)
			s.ground = &onFile{t: t}
			s.faults = ledgertest.Storm(s.seed)
			s.crashes = s.drawn(.04)
			s.run(true)
			crashed, turns = crashed+s.crashed, turns+s.turns
		})
		if t.Failed() {
			t.Fatalf("again with WALLET_SIM_FILE_SEED=%d go test -run TestSimulationOnAFile ./engines/wallet", seed)
		}
	}
	t.Logf("%d seeds: the process ended %d times, the clock was turned %d times", seeds, crashed, turns)
}

// run is the whole of it; clock says whether the clock is turned.
func (s *sim) run(clock bool) {
	s.begin()
	s.fund()
	stop := make(chan struct{})
	var clients, turner sync.WaitGroup
	if clock {
		turner.Go(func() { s.turnClock(stop) })
	}
	for c := range simClients {
		clients.Go(func() { s.client(c) })
	}
	clients.Wait()
	close(stop)
	turner.Wait()
	l := s.settle()
	s.check(l)
	s.head, _ = l.has.Head(l.ctx)
	l.r.stop()
	l.end()
}

// Over a wire that stalls, loses, repeats and delays, on a ledger that is away at times, in a process that ends at any boundary of a command and
// by a clock that jumps: what is told is what is in the journal, once.
func TestSimulation(t *testing.T) {
	seeds, first := fromEnv(t, "WALLET_SIM_SEEDS", few(simSeeds)), 0
	if one := fromEnv(t, "WALLET_SIM_SEED", -1); one >= 0 {
		first, seeds = one, 1
	}
	ops := fromEnv(t, "WALLET_SIM_OPS", simOps)
	crashed, turns := 0, 0
	for seed := first; seed < first+seeds; seed++ {
		s := simulate(t, seed, ops)
		crashed, turns = crashed+s.crashed, turns+s.turns
		if t.Failed() {
			t.Fatalf("again with WALLET_SIM_SEED=%d WALLET_SIM_OPS=%d go test -run TestSimulation ./engines/wallet", seed, ops)
		}
	}
	t.Logf("%d seeds: the process ended %d times, the clock was turned %d times", seeds, crashed, turns)
}
