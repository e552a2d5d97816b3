// Package logtree stores the RFC 6962 tree over the entries of a log as tiles of height 8, and
// makes proofs from them. A tile has up to 256 hashes. A narrower tile is a prefix of the stored
// one, so that tiles of every earlier size stay readable.
//
// # Invariants
//
//  1. A new leaf writes one tile, and one more for each tile that it fills.
//  2. A tree of n leaves depends on the first n leaves only: the bytes readable at a size never
//     change.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None: a Reader serves one goroutine at a time.
package logtree
