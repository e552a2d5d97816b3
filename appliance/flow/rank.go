package flow

import "fmt"

// Rank is the place of a lock in the one order in which locks are taken, outermost first. The configuration is an atomic pointer and has none.
type Rank int

// The ranks. Shards of one table share a rank, so a goroutine holds one shard at a time.
const (
	RankStateMeta Rank = iota + 1
	RankRunRegistry
	RankRoutingTable
	RankFlights
	RankCacheMeta
	RankBalanceCache
	RankBreakerTable
	RankCounters
)

// String returns the name of the lock class.
func (r Rank) String() string {
	switch r {
	case RankStateMeta:
		return "state_meta"
	case RankRunRegistry:
		return "run_registry"
	case RankRoutingTable:
		return "routing_table"
	case RankFlights:
		return "flights"
	case RankCacheMeta:
		return "cache_meta"
	case RankBalanceCache:
		return "balance_cache"
	case RankBreakerTable:
		return "breaker_table"
	case RankCounters:
		return "counters"
	}
	return fmt.Sprintf("rank(%d)", int(r))
}
