package wallet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// sim is one run: clients that each own an account send requests through a wallet over a bad wire, and ask again until they know.
type sim struct {
	r    *rig
	wire *ledgertest.Faulty
	seed uint64
	ops  int

	mu      sync.Mutex
	known   map[string]told // by key
	refused map[string]bool // by key
}

// told is what a client was given for a request.
type told struct {
	body []byte // the receipt, or the results of a batch
	ask  func() (Answer, error)
}

// didSomething is in every answer but that of a batch of which nothing was done: of that nothing is kept.
var didSomething = []byte(`"txid"`)

// until asks with one key, whose first nonce is given, until the answer is final.
func (s *sim) until(key string, nonce uint64, ask func() (Answer, error)) (Answer, error) {
	for n := 0; ; n++ {
		a, err := ask()
		if err == nil {
			s.mu.Lock()
			s.known[key] = told{a.Body, ask}
			s.mu.Unlock()
			return a, nil
		}
		var reject *ledger.Reject
		if errors.As(err, &reject) && reject.Code == record.NonceReused && !s.overtaken(key, nonce) {
			s.r.t.Errorf("seed %d: %s was done, and its answer is lost", s.seed, key)
		}
		if errors.As(err, &reject) || !CodeOf(err).Retryable {
			return a, err
		}
		if n == 500 {
			s.r.t.Errorf("seed %d: %s does not converge: %v", s.seed, key, err)
			return a, err
		}
		time.Sleep(100 * time.Millisecond)
	}
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
		by := cmp.Or(e.Receipt.Idem, client) // an op of a batch has no key
		s.mu.Lock()
		defer s.mu.Unlock()
		return by != key && s.refused[by]
	}
	return false
}

// refuse notes that a request was refused for good: under its key, and a batch under its client.
func (s *sim) refuse(key string, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[key] = true
	if client, _, _ := strings.Cut(key, "-"); whole {
		s.refused[client] = true
	}
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
			whole := d.IntN(2) == 0 // the same each time it is asked
			a, err := s.until(key, next, func() (Answer, error) { return s.r.e.Batch(context.Background(), alice, key, "", whole, ops) })
			if err != nil || !bytes.Contains(a.Body, didSomething) {
				s.refuse(key, true)
			}
			if code(err) == "IDEMPOTENCY_CONFLICT" {
				s.r.t.Errorf("seed %d: %s, asked again, is taken for something else", s.seed, key)
			}
			continue
		case 1:
			q.Op, q.ExpiresIn = record.OpHold, time.Hour
		case 2:
			if len(open) > 0 {
				q, open = Request{Op: record.OpCapture, Hold: open[0], Amount: amountOf(1)}, open[1:]
			}
		}
		a, err := s.until(key, next, func() (Answer, error) { return s.r.post(key, q) })
		if err != nil {
			s.refuse(key, false)
		}
		if err == nil && q.Op == record.OpHold {
			open = append(open, parse(s.r.t, a.Body).id(s.r.t))
		}
	}
}

// next asks for an account's next nonce until it is told.
func (s *sim) next(account string) uint64 {
	for {
		if a, err := s.r.e.Account(context.Background(), alice, account); err == nil {
			return a.NextNonce
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// check compares what the clients know with the journal: every receipt is in it, in the same bytes, asking again changes nothing, and no
// money was made or lost.
func (s *sim) check() {
	t := s.r.t
	total := uint64(0)
	for c := range simClients {
		v, err := s.r.model.Balance(context.Background(), name(c), "ron", 0)
		if err != nil {
			t.Fatal(err)
		}
		_, lo := v.Posted.Parts()
		total += lo
	}
	if total != simClients*500 {
		t.Errorf("seed %d: %d in all, want %d", s.seed, total, simClients*500)
	}
	for key, told := range s.known {
		if !bytes.Contains(told.body, didSomething) {
			continue
		}
		s.repeat(key, told)
		body := told.body
		if body[2] == 'r' { // results of a batch
			continue
		}
		again, err := s.r.e.Tx(context.Background(), alice, parse(t, body).id(t))
		for n := 0; err != nil && CodeOf(err).Retryable && n < 100; n++ {
			time.Sleep(100 * time.Millisecond)
			again, err = s.r.e.Tx(context.Background(), alice, parse(t, body).id(t))
		}
		if err != nil || string(again) != string(body) {
			t.Errorf("seed %d: %s: the journal has %s, %v; the client has %s", s.seed, key, again, err, body)
		}
	}
	s.balance()
}

// repeat asks once more for what is known.
func (s *sim) repeat(key string, was told) {
	again, err := was.ask()
	for n := 0; err != nil && CodeOf(err).Retryable && n < 500; n++ {
		time.Sleep(100 * time.Millisecond)
		again, err = was.ask()
	}
	if err != nil || !again.Replayed || string(again.Body) != string(was.body) {
		s.r.t.Errorf("seed %d: %s was answered\n%s, and again, replayed %t, %v:\n%s", s.seed, key, was.body, again.Replayed, err, again.Body)
	}
}

// balance adds up the journal, record by record, and compares the sums with the ledger's own.
func (s *sim) balance() {
	have, keys := map[string]int64{}, map[string]int{}
	for c := range simClients {
		for _, e := range s.history(name(c)) {
			if e.Receipt.Op == record.OpHold {
				continue
			}
			_, lo := e.Receipt.Amount.Parts()
			if e.Debit {
				have[name(c)] -= int64(lo)
				if e.Receipt.Idem != "" {
					keys[e.Receipt.Idem]++
				}
			} else {
				have[name(c)] += int64(lo)
			}
		}
	}
	for c := range simClients {
		v, _ := s.r.model.Balance(context.Background(), name(c), "ron", 0)
		if _, lo := v.Posted.Parts(); have[name(c)] != int64(lo) {
			s.r.t.Errorf("seed %d: the journal of %s adds up to %d, its balance is %d", s.seed, name(c), have[name(c)], lo)
		}
	}
	for key, n := range keys {
		if n > 1 {
			s.r.t.Errorf("seed %d: %s was done %d times", s.seed, key, n)
		}
	}
}

// history is all that was done with an account.
func (s *sim) history(account string) (all []ledger.Entry) {
	q := ledger.HistoryQuery{Account: account, Asset: "ron", Limit: ledger.MaxHistory}
	for {
		page, err := s.r.model.History(context.Background(), q)
		if err != nil {
			s.r.t.Error(err)
			return all
		}
		all = append(all, page.Entries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

// Over a wire that stalls, loses, repeats and delays, on a ledger that is away at times: what is told is what is in the journal, once.
func TestSimulation(t *testing.T) {
	seeds, first := fromEnv(t, "WALLET_SIM_SEEDS", simSeeds), 0
	if one := fromEnv(t, "WALLET_SIM_SEED", -1); one >= 0 {
		first, seeds = one, 1
	}
	ops := fromEnv(t, "WALLET_SIM_OPS", simOps)
	for seed := first; seed < first+seeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := &sim{seed: uint64(seed), ops: ops, known: map[string]told{}, refused: map[string]bool{}}
			s.r = newRig(t, with(func(c *Config) { c.BalanceCacheBytes = 1 << 20 }), over(func(c ledger.Client) ledger.Client {
				s.wire = ledgertest.NewFaulty(c, ledgertest.Storm(s.seed))
				return s.wire
			})).start()
			for c := range simClients {
				s.r.fund(name(c), 500)
			}
			var wg sync.WaitGroup
			for c := range simClients {
				wg.Go(func() { s.client(c) })
			}
			wg.Wait()
			s.check()
			s.r.stop()
		})
		if t.Failed() {
			t.Fatalf("again with WALLET_SIM_SEED=%d WALLET_SIM_OPS=%d go test -run TestSimulation ./engines/wallet", seed, ops)
		}
	}
}
