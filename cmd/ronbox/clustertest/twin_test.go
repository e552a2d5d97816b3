package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/namestest"
)

// twin is a service in memory that loses answers, as a cluster does whose leader is killed. A
// broken twin has one fault, which the checks must find.
type twin struct {
	broken string

	mu       sync.Mutex
	d        *rand.Rand        // guarded by mu, as all below
	funds    balances          // now
	old      balances          // some time ago
	receipts map[string][]byte // by key
	names    map[string]string // now
	oldNames map[string]string // some time ago
}

// The faults of broken twins.
const (
	sound        = "" // no fault
	paysTwice    = "a repetition after an unclear answer pays again"
	losesPayment = "an acknowledged transfer is lost"
	staleBalance = "a deposed leader answers with an old balance"
	staleName    = "a deposed leader answers with an old name"
	newReceipt   = "a repetition gets another receipt"
	halfPayment  = "the payer pays and the payee gets nothing"
	falseRefusal = "not_leader is answered to a transfer that is executed"
)

func newTwin(broken string, seed uint64) *twin {
	return &twin{
		broken: broken, d: rand.New(rand.NewPCG(seed, 1)), funds: balances{openingEach, openingEach, openingEach},
		receipts: map[string][]byte{}, names: map[string]string{}, oldNames: map[string]string{},
	}
}

func (s *twin) places() int { return 3 }

// wait takes the time of a request. The lock is not held meanwhile.
func (s *twin) wait() {
	s.mu.Lock()
	n := 1 + s.d.IntN(5)
	s.mu.Unlock()
	time.Sleep(time.Duration(n) * time.Millisecond)
}

// chance reports true once in n times. s.mu is held.
func (s *twin) chance(n int) bool { return s.d.IntN(n) == 0 }

// has reports whether the twin has a fault and shows it now. s.mu is held.
func (s *twin) has(fault string) bool { return s.broken == fault && s.chance(10) }

func (s *twin) transfer(_ context.Context, _ int, key string, in bankIn) (out posted, v verdict, err error) {
	s.wait()
	defer s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chance(20) {
		s.old = s.funds
	}
	if s.chance(20) {
		return out, nothing, errors.New("not leader")
	}
	if s.chance(20) {
		return out, unclear, errors.New("lost before it was executed")
	}
	was := s.receipts[key]
	if was == nil || s.has(paysTwice) {
		if s.funds[in.from] < in.amount {
			return out, refused, errors.New("insufficient funds")
		}
		if !s.has(losesPayment) {
			s.funds[in.from] -= in.amount
			if !s.has(halfPayment) {
				s.funds[in.to] += in.amount
			}
		}
	}
	if was == nil || s.has(newReceipt) {
		s.receipts[key] = fmt.Appendf(nil, "%s %d", key, s.d.Uint64())
	}
	if s.has(falseRefusal) {
		return out, nothing, errors.New("not leader, but it is executed")
	}
	if s.chance(10) {
		return out, unclear, errors.New("the answer is lost")
	}
	return posted{receipt: s.receipts[key], replayed: was != nil}, done, nil
}

func (s *twin) balance(_ context.Context, _ int, account int) (amount, seq uint64, err error) {
	s.wait()
	defer s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(staleBalance) {
		return s.old[account], 0, nil
	}
	return s.funds[account], 0, nil
}

func (s *twin) name(
	_ context.Context,
	_ int,
	key string,
	in namestest.In,
) (out namestest.Out, v verdict, err error) {
	s.wait()
	defer s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chance(20) {
		return out, unclear, errors.New("lost before it was executed")
	}
	switch in.Op {
	case namestest.Put:
		s.oldNames[key] = s.names[key]
		s.names[key] = in.Value
	case namestest.Get:
		out.Value = s.names[key]
		if s.has(staleName) {
			out.Value = s.oldNames[key]
		}
	case namestest.Delete:
		out.Found = s.names[key] != ""
		s.names[key] = ""
	}
	if s.chance(20) {
		return out, unclear, errors.New("the answer is lost")
	}
	return out, done, nil
}

// judge runs the load against a twin for a round of virtual time and returns what the checks find.
func judge(t *testing.T, broken string, seed uint64) error {
	var r *round
	var closed error
	synctest.Test(t, func(t *testing.T) {
		s := newTwin(broken, seed)
		r = newRound(s, newBank(s, fmt.Sprint(seed)), balances{openingEach, openingEach, openingEach}, int(seed))
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		wait := r.start(ctx, rand.New(rand.NewPCG(seed, 2)))
		wait()
		_, closed = r.close(t.Context(), rand.New(rand.NewPCG(seed, 3)))
	})
	return errors.Join(closed, r.check()) // outside the bubble, because the search has a time limit
}

// The checks pass a sound service that loses answers, and find each fault within a few rounds.
func TestChecksFindBrokenTwins(t *testing.T) {
	t.Parallel()
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	for i := range uint64(10) {
		if err := judge(t, sound, seed+i); err != nil {
			t.Errorf("a sound service, seed %d: %v", seed+i, err)
		}
	}
	for _, broken := range []string{
		paysTwice, losesPayment, staleBalance, staleName, newReceipt, halfPayment, falseRefusal,
	} {
		var found error
		for i := uint64(0); i < 5 && found == nil; i++ {
			found = judge(t, broken, seed+i)
		}
		if found == nil {
			t.Errorf("not found: %s", broken)
		}
	}
}
