package wallet_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/store"
)

// block is a command that blocks the store's committer until out is closed.
type block struct{ in, out chan struct{} }

func (*block) Kind() string { return "wallet.block/1" }

func (c *block) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	close(c.in)
	<-c.out
	return struct{}{}, errors.New("no trace")
}

// hold queues a block after the commands that are queued now.
func (n *node) hold() *block {
	b := &block{make(chan struct{}), make(chan struct{})}
	n.blocks.Go(func() { _, _ = store.Commit(context.Background(), n.store, store.Work, b) })
	return b
}

// queued returns the number of commands that wait for the committer.
func (n *node) queued() int {
	for _, c := range n.catalog.Channels() {
		if c.Service == "store" && c.Name == "work" {
			return c.Len
		}
	}
	return 0
}

// If the worker times out while the store still holds a request, its key becomes free. Sending the
// request again does not apply it twice: it returns an unknown outcome while the first is pending,
// and the receipt afterwards.
func TestSameKeyWhileTheFirstIsPending(t *testing.T) {
	n := newNode(t, with(func(c *wallet.Config) {
		c.Workers, c.Retry.Tries, c.Retry.RPCTimeout, c.CircuitBreaker.FailureThreshold = 1, 1, seconds(3), 1_000_000
	}))
	const requests = 4
	n.pay(requests, 100)
	first := n.hold()
	<-first.in
	ask := func() (unknown int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				_, err := n.post("k"+name(i), transfer(name(i), "shop", 10, 1))
				var out *wallet.OutcomeError
				if !errors.As(err, &out) {
					t.Errorf("request %d: %v", i, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if out != nil && out.Unknown {
					unknown++
				}
			})
		}
		wg.Go(func() {
			if first == nil {
				return
			}
			n.await("the worker's burst", func() bool { return n.queued() == 1 })
			second := n.hold()
			n.await("a command behind it", func() bool { return n.queued() == 2 })
			close(first.out) // the next group applies the bursts before it reaches the second block
			<-second.in
			first = second
		})
		wg.Wait()
		return unknown
	}
	if ask() == 0 {
		t.Fatal("the store had none of them")
	}
	held := first
	first = nil
	n.e.Gates().Ledger().Store(true)
	_ = ask()
	close(held.out)
	n.blocks.Wait()
	n.await("ready again", func() bool { return n.e.WriteReady() == nil })
	ids := map[int]record.TxID{}
	for round := range 2 {
		for i := range requests {
			a, err := n.post("k"+name(i), transfer(name(i), "shop", 10, 1))
			if err != nil {
				t.Fatalf("request %d after it: %v", i, err)
			}
			id := parse(t, bytesOf(a)).id(t)
			if round == 1 && (ids[i] != id || !a.Replayed) {
				t.Errorf("request %d has two receipts", i)
			}
			ids[i] = id
		}
	}
	if b, err := n.balance("shop", 0); err != nil || b.Available != amountOf(10*requests) {
		t.Errorf("the shop has %+v, %v", b, err)
	}
}
