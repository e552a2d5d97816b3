// Package pmtiles reads archives of map tiles in the PMTiles v3 format, and makes archives of some
// tiles of another one. It uses positioned reads only: if a file is truncated while it is read, a
// read returns an error, where access to a mapped file would crash.
//
// # Invariants
//
//  1. A position is checked against the file before it is read. No sum wraps. The lengths of
//     sections are only compared, because no reader needs them.
//  2. No allocation has a size from the file alone: each is bounded by maxRoot, maxDirectory,
//     maxEntries, maxMetadata or Options.MaxTile.
//  3. A tile that is empty or too long is skipped. A directory that does not read is fatal.
//  4. A directory in memory is valid, shared and never modified. So a lookup only checks that the
//     ids of a leaf lie in the span of the entry that points to it. It reads the tile and at most
//     maxDepth leaves, because leaves may form a cycle.
//  5. An id is in a span if and only if the square of its tile meets the region: an edge of the
//     region passes through it, or the region covers it.
//  6. A part has each content once, and verifies without a finding.
//
// # Tasks and queues
//
// None. Decoding a leaf needs one of the Slots. All archives together have one per core, one
// archive has half of them, and further callers wait until their context ends.
//
// # Lock order
//
// None.
package pmtiles
