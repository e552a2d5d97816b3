package wallet

import (
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/ledger"
)

// balances are the balances read last, none older than the staleness window, by the monotonic clock. What the ledger has changed since is
// told apart at once, by marks, however late the cache behind is with its sets.
type balances struct {
	kept  *cache.Cache[string, *balance]
	marks [ledger.Marks]atomic.Uint64 // newest record known to have touched a balance of this mark: 512 KiB of them
	floor atomic.Uint64               // entries of before this number of fills are void
	fills atomic.Uint64
}

// balanceCost is what an entry takes, about: the view, its texts, and the cache's own account of it.
const balanceCost = 320

type balance struct {
	view ledger.BalanceView
	read time.Time // before the ledger was asked, with the monotonic clock
	fill uint64
}

func newBalances(c *flow.Catalog, bytes int64) *balances {
	return &balances{kept: cache.New(c, cache.Spec[string, *balance]{
		Service: service, Name: "balance_cache", Producers: []string{flow.HTTP}, Doc: "balances", Bytes: bytes, Entry: balanceCost,
		Newer: func(old, v *balance) bool { return v.view.Seq >= old.view.Seq },
	})}
}

// balanceKey is one text for an account in an asset, whose names have no space.
func balanceKey(account, asset string) string { return account + " " + asset }

// Outcomes of a look into the cache, as balance_cache_total has them.
const (
	cacheHit    = "hit"
	cacheMiss   = "miss"   // not there
	cacheStale  = "stale"  // too old, or changed since
	cacheBehind = "behind" // older than the caller knows
)

// get gives the balance of an account in an asset, no older than window and at least as new as the record minSeq.
func (b *balances) get(account, asset string, minSeq uint64, window time.Duration) (hit *balance, outcome string) {
	hit, ok := b.kept.Get(balanceKey(account, asset))
	switch {
	case !ok:
		return nil, cacheMiss
	case time.Since(hit.read) >= window, hit.view.Seq < b.marks[ledger.MarkOf(account, asset)].Load(), hit.fill <= b.floor.Load():
		return nil, cacheStale
	case hit.view.Seq < minSeq:
		return nil, cacheBehind
	}
	return hit, cacheHit
}

// put keeps a view that was asked for at read.
func (b *balances) put(view ledger.BalanceView, read time.Time) {
	key := balanceKey(view.Account, view.Asset)
	cost := int64(balanceCost + 2*len(key))
	b.kept.Set(key, &balance{view: view, read: read, fill: b.fills.Add(1)}, cost)
}

// drop voids what the ledger has touched with records up to last.
func (b *balances) drop(touched []ledger.Mark, last uint64) {
	for _, m := range touched {
		raise(&b.marks[m], last)
	}
}

// dropAll voids everything kept so far.
func (b *balances) dropAll() { raise(&b.floor, b.fills.Load()) }

// raise makes v at least n.
func raise(v *atomic.Uint64, n uint64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}
