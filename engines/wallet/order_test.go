package wallet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"ronbox/engines/ledger"
)

// A batch that waits for a nonce of one account takes its place in another account with it: what follows it there waits for it, and is not
// sent ahead to be refused for the gap.
func TestBatchThatWaitsIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := map[string]chan struct{}{"bob": make(chan struct{}), "zed": make(chan struct{})}
		r := newRig(t, with(func(c *Config) { c.WorkerBurst = 1 }), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			if c := held[ops[0].From]; c != nil {
				<-c
			}
			return next.Commit(ctx, ops)
		})).start()
		var wg sync.WaitGroup
		ask := func(key string, ops ...Request) {
			wg.Go(func() {
				if a, err := r.e.Batch(context.Background(), alice, key, "", false, ops); err != nil || !a.whole() {
					t.Errorf("%s: %v: %s", key, err, a.bytes())
				}
			})
			synctest.Wait()
		}
		single := func(key string, q Request) {
			wg.Go(func() {
				if _, err := r.post(key, q); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		for _, account := range []string{"ann", "bob", "zed"} {
			r.fund(account, 100)
		}
		single("one-worker-has-this", transfer("bob", "shop", 1, 1))
		single("the-other-one-this", transfer("zed", "shop", 1, 1))
		ask("both", transfer("ann", "shop", 1, 1), transfer("bob", "shop", 1, 2))
		single("follows", transfer("ann", "shop", 1, 2))
		close(held["zed"])
		synctest.Wait()
		close(held["bob"])
		wg.Wait()
		r.stop()
	})
}
