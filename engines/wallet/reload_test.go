package wallet_test

import (
	"context"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// Reload takes effect with the next request.
func TestReload(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	r.must("before", transfer("alice", "bo", 100, 1))
	cfg := r.cfg
	cfg.MaxAmountPerOp, cfg.BatchMaxOps = amountOf(10), 1
	cfg.CircuitBreaker.FailureThreshold = 3
	r.e.Reload(cfg)
	if _, err := r.post("after", transfer("alice", "bo", 11, 2)); reasonOf(err) != "limit_op" {
		t.Errorf("%v", err)
	}
	if a, err := r.post("before", transfer("alice", "bo", 100, 1)); err != nil || !a.Replayed {
		t.Errorf("a lowered ceiling refuses a replay: %v", err)
	}
	ops := []ledger.Op{transfer("alice", "bo", 1, 2), transfer("alice", "bo", 1, 3)}
	if _, err := r.e.Batch(context.Background(), alice, "b", "", false, ops); reasonOf(err) != "limits_exceeded" {
		t.Errorf("%v", err)
	}
	cfg.NonceMode = wallet.NonceMonotonic
	r.e.Reload(cfg)
	r.must("skip", transfer("alice", "bo", 1, 50))
	if _, err := r.post("back", transfer("alice", "bo", 1, 49)); reasonOf(err) != "nonce_reused" {
		t.Errorf("%v", err)
	}
	if _, err := r.post("far", transfer("alice", "bo", 1, 51+wallet.NonceSpan)); reasonOf(err) != "nonce_gap" {
		t.Errorf("%v", err)
	}
}
