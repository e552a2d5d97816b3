// Package tile describes the tiles of map packs: their formats, their codings and the findings of
// a verification. Formats and codings are recognised by the first bytes of a tile.
//
// # Invariants
//
//  1. Only the names of the constants are formats, so that no text of a file enters a URL.
//  2. Decode returns at most limit bytes and holds little more.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package tile
