// Package pmtiles reads archives of map tiles in the PMTiles v3 format, by positioned reads alone: a file that is cut short under a reader is an
// error, where a mapped one would be a fault of memory.
//
// # Invariants
//
//  1. Nothing is read before its place is checked against its section, and the section against the file; no sum wraps.
//  2. Nothing is allocated by a number of the file alone: each has a bound here (maxRoot, maxDirectory, maxEntries, maxMetadata, maxTile).
//  3. A directory in memory is sound, is shared, and is never written. So a lookup checks only that the ids of a leaf stay inside the span of
//     the entry that points to it, and reads at most maxDepth leaves, which may point to themselves, and the tile.
//
// # Tasks and queues
//
// none. Decoding of a leaf takes one of the Slots: all archives together have as many as there are cores, one archive
// has half of them, and further callers wait until their context ends.
//
// # Lock order
//
// none
package pmtiles
