package wallet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// shaky is a ledger on which the next left calls fail with why.
type shaky struct {
	ledger.Client
	left  int
	why   error
	asked []time.Time
}

func (s *shaky) fails() error {
	s.asked = append(s.asked, time.Now())
	if s.left--; s.left >= 0 {
		return s.why
	}
	return nil
}

func shake[T any](s *shaky, ask func() (T, error)) (v T, err error) {
	if err := s.fails(); err != nil {
		return v, err
	}
	return ask()
}

func (s *shaky) Balance(ctx context.Context, account, asset string, minSeq uint64) (ledger.BalanceView, error) {
	return shake(s, func() (ledger.BalanceView, error) { return s.Client.Balance(ctx, account, asset, minSeq) })
}

func (s *shaky) Account(ctx context.Context, account string) (ledger.AccountView, error) {
	return shake(s, func() (ledger.AccountView, error) { return s.Client.Account(ctx, account) })
}

func (s *shaky) Assets(ctx context.Context) ([]ledger.AssetView, error) {
	return shake(s, func() ([]ledger.AssetView, error) { return s.Client.Assets(ctx) })
}

func (s *shaky) Tx(ctx context.Context, id record.TxID) (ledger.Outcome, error) {
	return shake(s, func() (ledger.Outcome, error) { return s.Client.Tx(ctx, id) })
}

func (s *shaky) History(ctx context.Context, q ledger.HistoryQuery) (ledger.Page, error) {
	return shake(s, func() (ledger.Page, error) { return s.Client.History(ctx, q) })
}

func (s *shaky) Roots(ctx context.Context, since uint64, n int) ([]record.Batch, error) {
	return shake(s, func() ([]record.Batch, error) { return s.Client.Roots(ctx, since, n) })
}

func (s *shaky) Head(ctx context.Context) (record.Head, error) {
	return shake(s, func() (record.Head, error) { return s.Client.Head(ctx) })
}

func (s *shaky) Consistency(ctx context.Context, from, to uint64) (record.Consistency, error) {
	return shake(s, func() (record.Consistency, error) { return s.Client.Consistency(ctx, from, to) })
}

func (s *shaky) Prepare(ctx context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	return s.Client.Prepare(ctx, op)
}

// Each read of the ledger is tried three times in total, after delays of 50 and 100 ms with 20 ms
// jitter. Read retries are counted separately from commit retries. An error returned by the ledger
// itself is not retried.
func TestReadRetries(t *testing.T) {
	ctx := context.Background()
	for what, ask := range map[string]func(*rig, record.TxID) error{
		wallet.OpBalance: func(r *rig, _ record.TxID) error { _, err := r.balance("alice", 0); return err },
		wallet.OpAccount: func(r *rig, _ record.TxID) error { _, err := r.e.Account(ctx, alice, "alice"); return err },
		wallet.OpAssets:  func(r *rig, _ record.TxID) error { _, err := r.e.Assets(ctx, alice); return err },
		wallet.OpTx:      func(r *rig, id record.TxID) error { _, err := r.e.Tx(ctx, alice, id); return err },
		wallet.OpHistory: func(r *rig, _ record.TxID) error {
			_, err := r.e.History(ctx, alice, ledger.HistoryQuery{Account: "alice", Asset: "ron", Limit: 10})
			return err
		},
		wallet.OpRoots:       func(r *rig, _ record.TxID) error { _, err := r.e.Roots(ctx, alice, 0, 10); return err },
		wallet.OpHead:        func(r *rig, _ record.TxID) error { _, err := r.e.Head(ctx, alice); return err },
		wallet.OpConsistency: func(r *rig, _ record.TxID) error { _, err := r.e.Consistency(ctx, alice, 1, 1); return err },
		wallet.OpPrepare:     func(r *rig, _ record.TxID) error { _, err := r.post("new", transfer("alice", "bo", 1, 2)); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			var wire *shaky
			r := newRig(t, over(func(c ledger.Client) ledger.Client { wire = &shaky{Client: c}; return wire })).start()
			r.fund("alice", 100)
			id := r.must("k", transfer("alice", "bo", 1, 1)).id(t)
			begin := func(left int, why error) {
				time.Sleep(time.Second) // so that no cached balance is fresh
				wire.left, wire.why, wire.asked = left, why, nil
			}
			retries := func(want float64) {
				t.Helper()
				r.want(want, "backoff_retries_total", "service", wallet.Service, "op", "read", "svc", "ledger")
				r.want(0, "backoff_retries_total", "service", wallet.Service, "op", wallet.OpCommit, "svc", "ledger")
			}
			begin(3, unavailable(false))
			var out *wallet.OutcomeError
			if err := ask(r, id); !errors.As(err, &out) || out.Unknown || len(wire.asked) != 3 {
				t.Errorf("%s: %v after %d tries", what, err, len(wire.asked))
			}
			retries(2)
			r.want(1, "upstream_fail_total", "service", wallet.Service, "svc", "ledger")
			begin(2, unavailable(false))
			if err := ask(r, id); err != nil || len(wire.asked) < 3 ||
				!near(wire.asked[1].Sub(wire.asked[0]), 50*time.Millisecond, 20*time.Millisecond) ||
				!near(wire.asked[2].Sub(wire.asked[1]), 100*time.Millisecond, 20*time.Millisecond) {
				t.Errorf("%s: %v, asked at %v", what, err, wire.asked)
			}
			retries(4)
			begin(1, ledger.ErrRange)
			// For opPrepare the request replays the transfer committed by the previous call, and
			// succeeds.
			if err := ask(r, id); !errors.Is(err, ledger.ErrRange) && what != wallet.OpPrepare {
				t.Errorf("%s: %v", what, err)
			}
			retries(4)
			r.want(1, "upstream_fail_total", "service", wallet.Service, "svc", "ledger")
			r.stop()
		})
	}
}
