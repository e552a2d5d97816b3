package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// Every refused op of a batch is counted once under its reason. The audit stream records how many
// ops were accepted.
func TestBatchIsBooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(t, func(r *rig) {
			r.log = hclog.New(&hclog.LoggerOptions{Output: out, JSONFormat: true, Level: hclog.Info})
		}).start()
		r.fund("alice", 100)
		some := []ledger.Op{
			transfer("alice", "bo", 10, 1),
			transfer("alice", "bo", 1000, 2),
			transfer("alice", "bo", 20, 9),
			transfer("carol", "bo", 1, 1),
			transfer("alice", "bo", 10, 2),
		}
		for range 2 { // the first request and its replay
			if a, err := r.e.Batch(context.Background(), alice, "some", "corr-some", false, some); err != nil ||
				wholeOf(a) {
				t.Fatalf("%s, %v", bytesOf(a), err)
			}
		}
		r.want(2, "wallet_rejects_total", "reason", "insufficient_funds")
		r.want(1, "wallet_rejects_total", "reason", "nonce_gap")
		r.want(1, "wallet_nonce_conflicts_total")
		if a, err := r.e.Batch(context.Background(), alice, "none", "corr-none", false, some[3:4]); err != nil ||
			wholeOf(a) {
			t.Fatalf("%s, %v", bytesOf(a), err)
		}
		r.stop()
		for line := range strings.Lines(out.String()) {
			switch {
			case strings.Contains(line, "corr-some"):
				if !strings.Contains(line, "wallet.batch.accepted") || !strings.Contains(line, `"count":2`) {
					t.Errorf("two of five accepted: %s", line)
				}
			case strings.Contains(line, "corr-none"):
				if !strings.Contains(line, wallet.EventRejected) || !strings.Contains(line, "insufficient_funds") {
					t.Errorf("none accepted: %s", line)
				}
			}
		}
		if !strings.Contains(out.String(), "corr-some") || !strings.Contains(out.String(), "corr-none") {
			t.Errorf("the log has neither: %s", out)
		}
	})
}

// A refusal by the ledger does not count as a failure of the ledger.
func TestRefusalsAreNoFailures(t *testing.T) {
	var say error
	r := newRig(
		t,
		commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) { return nil, say }),
	).start()
	for _, say = range []error{&ledger.OpError{Field: "memo", Reason: "is bad"}, fmt.Errorf("commit: %w", ledger.ErrFull)} {
		if _, err := r.post("k", issue("bo", 1, 1)); err == nil {
			t.Error("accepted")
		}
	}
	r.want(0, "upstream_fail_total", "service", wallet.Service, "svc", "ledger")
	r.want(2, "upstream_calls_total", "service", wallet.Service, "svc", "ledger", "op", wallet.OpCommit, "outcome", "refused")
	r.want(0, "upstream_calls_total", "service", wallet.Service, "svc", "ledger", "op", wallet.OpCommit, "outcome", "failed")
}

// The ceiling of a token refuses only the request made with that token. A concurrent request with
// the same key and a wider token succeeds.
func TestCeilingOfTheFirstOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, over(func(c ledger.Client) ledger.Client { return &slowFind{c} })).start()
		r.fund("alice", 100)
		small := grant(func(g *engines.Grant) { g.NarrowCeiling(amountOf(5)) })
		wide := alice
		small.Principal, wide.Principal = "one", "one"
		answers := make(chan error, 2)
		for _, by := range []engines.Actor{small, wide} {
			go func() {
				_, err := r.e.Post(context.Background(), by, "k", "", transfer("alice", "bo", 10, 1))
				answers <- err
			}()
			synctest.Wait()
		}
		var refused *engines.GrantError
		if err := <-answers; !errors.As(err, &refused) {
			t.Errorf("the narrow one: %v", err)
		}
		if err := <-answers; err != nil {
			t.Errorf("the wide one: %v", err)
		}
		if got := r.available("bo"); got != "10" {
			t.Errorf("bo has %s", got)
		}
		r.stop()
	})
}

// slowFind is a ledger that takes 100 ms to prepare an op.
type slowFind struct{ ledger.Client }

func (f *slowFind) Prepare(ctx context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	time.Sleep(100 * time.Millisecond)
	return f.Client.Prepare(ctx, op)
}
