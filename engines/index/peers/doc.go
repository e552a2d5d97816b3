// Package peers holds the peers that the index asks, with a breaker for each, and the owners of
// names in the fleet.
//
// # Invariants
//
//  1. Peers and owners are one snapshot, a Set, which SetFleet replaces. A Set is immutable.
//  2. A peer keeps its breaker and its counters as long as it stays.
//  3. Only the breaker janitor changes the state of a breaker.
//  4. The order in which a key asks the peers depends on the key, the region and the owner only.
//
// # Tasks and queues
//
// Tasks (name, count):
//   - breaker_janitor, 1: every 250 ms steps the breakers
//
// The ticker breaker_tick merges missed ticks.
//
// # Lock order
//
// None: a Set is published atomically, and the counters of a Peer are atomic.
package peers
