// Package pack serves map tiles from the pack files of a folder, which are in PMTiles or MBTiles
// format, and verifies these files.
//
// # Invariants
//
//  1. A bad pack affects only itself. The boot opens no pack. Opening a pack, reading a tile and
//     checking a pack each have a deadline, and no allocation is as large as the pack's file
//     demands.
//  2. No tile of a file is served before the check of its structure and of a sample has passed.
//     A file that replaces a pack that serves also waits for its hash. The file itself is served
//     once its hash is known. Defects of which other tiles do not depend are warnings; a tile with
//     one is skipped.
//  3. A generation is immutable. A request that has begun keeps its pack open, although a newer
//     generation no longer has it.
//  4. The result of a verification is kept in a row, and counts as long as the file has the same
//     size, time and inode, and the check the same rules. A row that does not read is dropped, and
//     the packs are verified again.
//  5. The format and the coding of a tile are those of its bytes. Tiles over 1 MiB are read within
//     tile_room.
//  6. An upload has its name only when it is whole, sound and on the disk. A scan skips it until
//     then, and the start of the node removes what a kill has left of one. Uploads and extracts
//     share the room of edge.packs.max_bytes, and no two of them get one id.
//
// # Tasks and queues
//
// Tasks (name, count):
//   - pack_scanner, 1: lists the folder of packs, for each job and every edge.packs.watch
//   - pack_opener, 1: opens new packs, at most 2 s each
//   - verifier, 2: checks packs, then hashes them, the smallest first
//
// Queues (name, capacity, policy, producer -> consumer):
//   - verify_tx, 32, reject new: scans, HTTP and the reloader -> pack_scanner
//   - pack_looks, ticker -> pack_scanner
//   - tile_room, 64 slots, and tile_turn, 1: MiB of tiles over 1 MiB, HTTP
//   - pack_naming, 1 slot: uploads and extracts that get their names, HTTP and extractor
//   - packs, watch: the current packs, tasks of packs -> tasks of packs and HTTP
//
// # Lock order
//
// None. The current generation is an atomic pointer.
package pack
