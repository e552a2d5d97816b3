// Package announce tells the other nodes of a fleet which objects this node provides.
//
// # Invariants
//
// An object of edge/announced is announced again when half of the life of its record has passed,
// until it is removed, unpinned or lost.
//
// # Tasks and queues
//
//   - announcer, 1, in a fleet with an index only: renews the announcements of edge/announced
//
// The ticker announce_tick merges missed ticks.
//
// # Lock order
//
// None.
package announce
