// Package edge is the edge's part of the HTTP surface: assets by path or by hash, whole or a range of them, map tiles with their TileJSON, a
// page that draws a pack, and the fills. New makes it from the engine behind Engine; Client calls it.
//
// # Invariants
//
//  1. The tag of an answer is the BLAKE3 of the bytes it stands for: a 206 has that of the whole, a tile that of the coding it is sent in.
//  2. A condition or a range is understood as RFC 9110 writes it, or refused; a range of another unit, and any of a HEAD, is ignored.
//  3. An answer may be kept for ever only under a name that means these bytes: a hash, or a tile URL with the version it came from.
//  4. A path means what it says once it is decoded: one that hides a slash or a backslash in an escape is refused.
//  5. Nothing that was fetched runs on the node's origin, and the pages load nothing from another.
//  6. Every refusal counts in edge_rejects_total under the seed's word for it, the frame's refusals too.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package edge
