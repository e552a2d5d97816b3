package wallet

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"ronbox/engines/ledger"
)

// balances are the balances read last, none older than the staleness window, by the monotonic clock. What the ledger has changed since is
// told apart at once, by marks, however late the cache behind is with its sets.
type balances struct {
	kept  *cache[string, *balance]
	seed  maphash.Seed
	marks [balanceMarks]atomic.Uint64 // newest record known to have touched an account that falls here
	floor atomic.Uint64               // entries of before this number of fills are void
	fills atomic.Uint64
}

// balanceMarks is how many marks there are, 512 KiB of them: two accounts that share one cost each other a miss, nothing else.
const balanceMarks = 1 << 16

// balanceCost is what an entry takes, about: the view, its texts, and the cache's own account of it.
const balanceCost = 320

type balance struct {
	view ledger.BalanceView
	read time.Time // before the ledger was asked, with the monotonic clock
	fill uint64
}

func newBalances(bytes int64) *balances {
	newer := func(old, v *balance) bool { return v.view.Seq >= old.view.Seq }
	return &balances{kept: &cache[string, *balance]{bytes: bytes, entry: balanceCost, newer: newer}, seed: maphash.MakeSeed()}
}

// balanceKey is one text for an account in an asset, whose names have no space.
func balanceKey(account, asset string) string { return account + " " + asset }

func (b *balances) mark(key string) *atomic.Uint64 {
	return &b.marks[maphash.String(b.seed, key)%balanceMarks]
}

// Outcomes of a look into the cache, as balance_cache_total has them.
const (
	cacheHit    = "hit"
	cacheMiss   = "miss"   // not there
	cacheStale  = "stale"  // too old, or changed since
	cacheBehind = "behind" // older than the caller knows
)

// get gives a balance no older than window that has seen the record minSeq.
func (b *balances) get(key string, minSeq uint64, window time.Duration) (hit *balance, outcome string) {
	hit, ok := b.kept.get(key)
	switch {
	case !ok:
		return nil, cacheMiss
	case time.Since(hit.read) >= window, hit.view.Seq < b.mark(key).Load(), hit.fill <= b.floor.Load():
		return nil, cacheStale
	case hit.view.Seq < minSeq:
		return nil, cacheBehind
	}
	return hit, cacheHit
}

// put keeps a view that was asked for at read.
func (b *balances) put(key string, view ledger.BalanceView, read time.Time) {
	cost := int64(balanceCost + 2*len(key))
	b.kept.set(key, &balance{view: view, read: read, fill: b.fills.Add(1)}, cost)
}

// drop voids what the ledger has touched with records up to last.
func (b *balances) drop(touched []ledger.AcctAsset, last uint64) {
	var h maphash.Hash
	h.SetSeed(b.seed)
	for i := range touched {
		h.Reset()
		_, _ = h.WriteString(touched[i].Account)
		_ = h.WriteByte(' ')
		_, _ = h.WriteString(touched[i].Asset)
		raise(&b.marks[h.Sum64()%balanceMarks], last)
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
