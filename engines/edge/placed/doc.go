// Package placed keeps here what the registry places on this node: it fetches the objects of
// placements from other nodes and pins them.
//
// # Invariants
//
//  1. A placement is refused before its first object is fetched if its objects, by the sizes in
//     its manifest, exceed fleet.max_placed or the room for pins.
//  2. The pins of placements are URLs of their own: they neither end nor outlast a pin of a caller.
//  3. A placed site is served in the edition that was complete last. It stays pinned until the next
//     one is complete.
//  4. Nothing of a placement is unpinned while its objects are not known.
//
// # Tasks and queues
//
//   - placer, 1: looks at the placements after each version of the registry and each 30 s; fetches
//     and pins what is missing, 4 objects at once
//
// The ticker place_tick merges missed ticks.
//
// # Lock order
//
// The mutex of the objects that are fetched together is a leaf.
package placed
