package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// The size of a history: small enough for the checker to decide, and with enough contention to
// expose errors. WALLET_HISTORIES, 500 in make check, is the number of histories.
const (
	linearHistories = 150
	linearUndecided = 5 // so many the checker need not decide in its time
	linearClients   = 8
	linearOps       = 5
	linearAccounts  = 3
)

// linearState is the sequential model of a wallet: balances and last nonces.
type linearState struct {
	balance, nonce [linearAccounts]uint64
}

// linearIn is a transfer, or a balance read if amount is 0.
type linearIn struct {
	from, to      int
	amount, nonce uint64
}

// linearOut is the verdict of a transfer, or a balance. open marks a transfer that may have been
// applied or may be applied later.
type linearOut struct {
	verdict record.Result
	balance uint64
	open    bool
}

func linearStep(state, input, output any) (bool, any) {
	s, in, out := state.(linearState), input.(linearIn), output.(linearOut)
	if in.amount == 0 {
		return out.balance == s.balance[in.from], s
	}
	want := record.Accepted
	switch last := s.nonce[in.from]; {
	case in.nonce <= last:
		want = record.NonceReused
	case in.nonce > last+1:
		want = record.NonceGap
	case s.balance[in.from] < in.amount:
		want = record.InsufficientFunds
	}
	if want == record.Accepted && (out.open || out.verdict == want) {
		s.nonce[in.from]++
		s.balance[in.from] -= in.amount
		s.balance[in.to] += in.amount
	}
	return out.open || out.verdict == want, s
}

// linearRun records one history.
type linearRun struct {
	r       *rig
	ledger  ledger.Client // read for nonces, bypassing all faults
	account [linearAccounts]string
	prefix  string // of the keys
	late    bool   // the wire may deliver old requests again, so that a refused transfer may be applied later
	clock   atomic.Int64
	seen    atomic.Uint64 // an upper bound on the newest record that any client knows

	mu  sync.Mutex
	ops []porcupine.Operation
}

func (h *linearRun) add(client int, in linearIn, call int64, out linearOut, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
}

// transfer retries until the answer is final, at most 30 times.
func (h *linearRun) transfer(client, n int, in linearIn) {
	key, call, unknown := fmt.Sprintf("%sc%d-%d", h.prefix, client, n), h.clock.Add(1), false
	for range 30 {
		a, err := h.r.post(key, transfer(h.account[in.from], h.account[in.to], in.amount, in.nonce))
		var reject *ledger.Reject
		var out *wallet.OutcomeError
		switch {
		case err == nil:
			raise(&h.seen, parse(h.r.t, bytesOf(a)).Ledger.Seq)
			h.add(client, in, call, linearOut{verdict: record.Accepted}, h.clock.Add(1))
			return
		case errors.As(err, &reject):
			h.told()
			h.add(client, in, call, linearOut{verdict: reject.Code}, h.clock.Add(1))
			if unknown || h.late {
				h.add(client, in, call, linearOut{open: true}, math.MaxInt64)
			}
			return
		case errors.As(err, &out) && out.Unknown:
			unknown = true
		}
		time.Sleep(200 * time.Millisecond)
	}
	if unknown || h.late { // a refused try may precede the last answer: nonce_gap, then the breaker
		h.add(client, in, call, linearOut{open: true}, math.MaxInt64)
	}
}

// told raises seen to the head of the ledger. A refusal reveals earlier records without naming
// them, and a later balance read without min_seq could be older.
func (h *linearRun) told() {
	head, err := h.ledger.Head(context.Background())
	if err != nil {
		h.r.t.Error(err)
	}
	raise(&h.seen, head.Seq)
}

func (h *linearRun) read(client, account int) {
	seen, call := h.seen.Load(), h.clock.Add(1)
	if b, err := h.r.balance(h.account[account], seen); err == nil {
		_, lo := b.Available.Parts()
		raise(&h.seen, b.Seq) // a balance reveals records too, acknowledged or not
		h.add(client, linearIn{from: account}, call, linearOut{balance: lo}, h.clock.Add(1))
	}
}

func (h *linearRun) client(client int, d *rand.Rand) {
	for n := range linearOps {
		time.Sleep(time.Duration(d.Int64N(int64(50 * time.Millisecond))))
		in := linearIn{from: d.IntN(linearAccounts), to: d.IntN(linearAccounts - 1), amount: 1 + d.Uint64N(60)}
		if in.to >= in.from {
			in.to++
		}
		if d.IntN(3) == 0 {
			h.read(client, in.from)
			continue
		}
		view, err := h.ledger.Account(context.Background(), h.account[in.from])
		if err != nil {
			h.r.t.Error(err)
		}
		in.nonce = view.LastNonce + 1 + d.Uint64N(4)/3
		h.transfer(client, n, in)
	}
}

// linearFaults returns no faults for one seed in four, all faults for another, and otherwise only
// faults after which a refusal is final.
func linearFaults(seed uint64) ledgertest.Faults {
	f := ledgertest.Storm(seed)
	switch seed % 4 {
	case 0:
		return ledgertest.Faults{Seed: seed}
	case 1:
		return f
	}
	f.Late, f.Repeat = 0, 0
	return f
}

// Under all faults, the answers to clients are linearizable: they match a sequential wallet.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	model := porcupine.Model{Step: linearStep}
	undecided := 0
	for seed := range uint64(fromEnv(t, "WALLET_HISTORIES", few(linearHistories))) {
		synctest.Test(t, func(t *testing.T) {
			f := linearFaults(seed)
			h := &linearRun{late: f.Late > 0, r: newRig(t, over(func(c ledger.Client) ledger.Client {
				return ledgertest.NewFaulty(c, f)
			})).start()}
			h.ledger = h.r.model
			start := linearState{}
			for i := range linearAccounts {
				h.account[i] = name(i)
				h.r.fund(name(i), 100)
				start.balance[i] = 100
			}
			model.Init = func() any { return start }
			var wg sync.WaitGroup
			for c := range linearClients {
				wg.Go(func() { h.client(c, rand.New(rand.NewPCG(seed, uint64(c)))) })
			}
			wg.Wait()
			switch porcupine.CheckOperationsTimeout(model, h.ops, 5*time.Second) {
			case porcupine.Illegal:
				t.Errorf("seed %d is not linearizable: %+v", seed, h.ops)
			case porcupine.Unknown:
				undecided++
			case porcupine.Ok:
			}
			h.r.stop()
		})
		if t.Failed() {
			return
		}
	}
	if undecided > linearUndecided {
		t.Errorf("%d histories undecided", undecided)
	}
}

// raise sets v to n if v is less than n.
func raise(v *atomic.Uint64, n uint64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}
