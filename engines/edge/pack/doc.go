// Package pack serves map tiles from the pack files of a folder, which are in PMTiles or MBTiles
// format, and verifies these files.
//
// # Invariants
//
//  1. A bad pack affects only itself. The boot opens no pack. Opening a pack, reading a tile and
//     checking a pack each have a deadline, and no allocation is as large as the pack's file
//     demands.
//  2. A file that replaces a pack serves after it was verified. The first file under an id serves
//     tiles while it is being verified, because each read is checked by itself.
//  3. A generation is immutable. A request that has begun keeps its pack open, although a newer
//     generation no longer has it.
//  4. The result of a verification is kept in a row, and counts as long as the file has the same
//     size, time and inode. A row that does not read is dropped, and the packs are verified again.
//
// # Tasks and queues
//
// Tasks (name, count):
//   - pack_scanner, 1: lists the folder of packs
//   - pack_opener, 1: opens new packs, at most 2 s each
//   - verifier, 2: verifies packs, the smallest first
//
// Queues (name, capacity, policy, producer -> consumer):
//   - verify_tx, 32, reject new: scans, HTTP and the reloader -> pack_scanner
//   - packs, watch: the current packs, tasks of packs -> tasks of packs and HTTP
//
// # Lock order
//
// None. The current generation is an atomic pointer.
package pack
