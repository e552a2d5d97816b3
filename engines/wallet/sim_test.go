package wallet_test

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
	"ronbox/engines/wallet"
)

// The sizes of the simulation. WALLET_SIM_SEEDS, 200 in make check, and WALLET_SIM_OPS make it
// longer, and WALLET_SIM_SEED runs one seed.
const (
	simSeeds   = 60
	simOps     = 100
	simClients = 8
)

// few returns n, or a fifth of n with -short, as rapid does.
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

// sim is one run of the simulation. Clients, each with an account, send requests through a wallet
// over a faulty wire. The process crashes and restarts, and the wall clock jumps. Clients retry
// until their outcome is known.
type sim struct {
	t       *testing.T
	seed    uint64
	ops     int
	faults  ledgertest.Faults
	crashes func(key string, sent int) moment
	ground  ground
	wall    *wall
	turns   int         // of the clock
	head    record.Head // at the end

	mu      sync.Mutex
	known   map[string]told // by key
	refused map[string]bool // by key
	sent    map[string]int  // number of submissions of a burst that begins with the request of a key
	now     *life           // nil while no process runs
	up      chan struct{}   // closed when a process starts
	calm    bool            // no more crashes
	crashed int
	lives   int            // number of processes started
	after   sync.WaitGroup // goroutines other than the clients
}

// told holds the answer that a client got for a request.
type told struct {
	body []byte // the receipt, or the results of a batch
	ask  func(*life) (wallet.Answer, error)
}

func newSim(t *testing.T, seed uint64, ops int) *sim {
	s := &sim{
		t:       t,
		wall:    newWall(),
		seed:    seed,
		ops:     ops,
		known:   map[string]told{},
		refused: map[string]bool{},
		sent:    map[string]int{},
		up:      make(chan struct{}),
		crashes: func(string, int) moment { return never },
	}
	s.ground = newOnModel(t, s.wall.Now)
	return s
}

// configure sets a daily ceiling that clients sometimes reach, and removes all randomness except
// the seed's.
func (s *sim) configure(r *rig) {
	r.cfg.Retry.Jitter = 0
	r.cfg.MaxAmountPerOp, r.cfg.DailyCeiling = amountOf(200), amountOf(simDaily)
}

// simDaily is the daily ceiling of an account.
const simDaily = 600

// didSomething occurs in every answer except that of a batch without an accepted op, which is not
// stored.
var didSomething = []byte(`"txid"`)

// errGone is the error of a request if its process has crashed.
var errGone = unavailable(true)

// ask sends a request once to the running process.
func (s *sim) ask(who string, send func(*life) (wallet.Answer, error)) (wallet.Answer, error) {
	l := s.alive(who)
	a, err := send(l)
	if l.ctx.Err() != nil {
		return wallet.Answer{}, errGone
	}
	return a, err
}

// until sends a request with one key until the answer is final.
func (s *sim) until(key string, ask func(*life) (wallet.Answer, error)) (wallet.Answer, error) {
	d := s.dice("again "+key, 0)
	for n := 0; ; n++ {
		a, err := s.ask(key, ask)
		if err == nil {
			s.mu.Lock()
			s.known[key] = told{bytesOf(a), ask}
			s.mu.Unlock()
			return a, nil
		}
		if isA[*ledger.Reject](err) || !rowOf(err).Retry {
			return a, err
		}
		if n == 500 {
			s.t.Errorf("seed %d: %s does not converge: %v", s.seed, key, err)
			return a, err
		}
		time.Sleep(50*time.Millisecond + time.Duration(d.Int64N(int64(100*time.Millisecond))))
	}
}

// once calls until for a request with a nonce that no other client uses. It fails the test if the
// request is refused because the request itself used the nonce.
func (s *sim) once(key string, nonce uint64, ask func(*life) (wallet.Answer, error)) (wallet.Answer, error) {
	began := s.wall.Now()
	a, err := s.until(key, ask)
	var reject *ledger.Reject
	if errors.As(err, &reject) && reject.Code == record.NonceReused && !s.overtaken(key, nonce) && !s.lapsed(began) {
		s.t.Errorf("seed %d: %s was done, and its answer is lost", s.seed, key)
	}
	return a, err
}

// lapsed reports whether a key first used at that time has expired.
func (s *sim) lapsed(at time.Time) bool {
	return s.wall.Now().Sub(at) >= wallet.DefaultConfig().IdempotencyTTL.D()
}

// overtaken reports whether another request of the same client used the nonce: a refused request
// that the wire delivered again later. Only its own client uses the nonces of an account.
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

// refuse records that a request was finally refused.
func (s *sim) refuse(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[key] = true
}

// client moves money from its account to the others with single requests and batches, and holds
// some amounts.
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
			ops := []ledger.Op{q, transfer(mine, other, 1+d.Uint64N(200), next+1), transfer(mine, other, 1, next+2)}
			s.batch(key, next, d.IntN(2) == 0, ops)
			continue
		case 1:
			q.Code, q.ExpiresIn = record.OpHold, time.Hour
		case 2:
			if len(open) > 0 {
				q, open = ledger.Op{Code: record.OpCapture, Hold: open[0], Amount: amountOf(1)}, open[1:]
			}
		}
		a, err := s.once(key, next, func(l *life) (wallet.Answer, error) { return l.r.e.Post(l.ctx, alice, key, "", q) })
		if err != nil {
			s.refuse(key)
		}
		if err == nil && q.Code == record.OpHold {
			open = append(open, parse(s.t, bytesOf(a)).id(s.t))
		}
	}
}

func (s *sim) batch(key string, next uint64, whole bool, ops []ledger.Op) {
	a, err := s.once(key, next, func(l *life) (wallet.Answer, error) { return l.r.e.Batch(l.ctx, alice, key, "", whole, ops) })
	if err != nil || !bytes.Contains(bytesOf(a), didSomething) {
		s.refuse(key)
	}
	if reasonOf(err) == "idem_conflict" {
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

// fund issues 500 to each client, bypassing the wallet.
func (s *sim) fund() {
	for c := range simClients {
		outs, err := s.alive("").has.Commit(context.Background(), []ledger.Op{
			{
				Code:      record.OpIssue,
				To:        name(c),
				Asset:     "ron",
				Amount:    amountOf(500),
				Nonce:     uint64(c + 1),
				Principal: "test",
			},
		})
		if err != nil || outs[0].Reject != nil {
			s.t.Fatalf("fund: %+v, %v", outs, err)
		}
	}
}

// simulate runs one seed.
func simulate(t *testing.T, seed, ops int) (s *sim) {
	oneAfterTheOther(t, func(t *testing.T) {
		s = newSim(t, uint64(seed), ops)
		s.faults = ledgertest.Storm(s.seed)
		s.crashes = s.drawn([]float64{0, .01, .03, .08}[seed%4])
		s.run(seed/4%2 == 1)
	})
	return s
}

// oneAfterTheOther runs a bubble on one processor, so that goroutines due at the same nanosecond
// run in the same order each time.
func oneAfterTheOther(t *testing.T, run func(*testing.T)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, run)
}

// A seed determines the whole run: the same seed produces the same journal, to the nanosecond. A
// busy machine may preempt any run, so the test looks for two equal runs among a few.
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

// The sizes of the simulation on a file, where syncs are slow.
const (
	fileSeeds = 4
	fileOps   = 64
)

// The simulation on the real ledger. Each process opens the file that the previous process left.
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

// run runs the simulation and checks it. If clock is set, the wall clock is turned during the run.
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

// The wire stalls, loses, repeats and delays messages, the ledger is unavailable at times, the
// process crashes at any boundary of a command, and the clock jumps. Every answer matches the
// journal, and every request is applied at most once.
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
			t.Fatalf("again with WALLET_SIM_SEED=%d WALLET_SIM_OPS=%d go test -run TestSimulation ./engines/wallet",
				seed, ops)
		}
	}
	t.Logf("%d seeds: the process ended %d times, the clock was turned %d times", seeds, crashed, turns)
}
