// Package logtree keeps the RFC 6962 tree over a log's entries as tiles of height 8, and proves with them. A tile is up to 256 hashes; a
// narrower tile is a prefix of the stored one, so that tiles of every earlier size stay readable.
//
// # Invariants
//
//  1. Growing by one leaf writes one tile, and one more for each tile that it fills.
//  2. A tree of n leaves is decided by the first n leaves alone: what was readable at a size stays so, byte for byte.
//
// # Tasks and queues
//
// none: callers drive it.
//
// # Lock order
//
// none: a Reader serves one goroutine at a time.
package logtree
