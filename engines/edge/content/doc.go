// Package content keeps the objects of the edge: the files, their rows, their pins, their room on
// the disk, their only writer and their repair.
//
// # Invariants
//
//  1. Only the task cas_writer names, moves and removes objects and sends the commands that change
//     their rows. An object is named before its row is written, and its row is deleted before the
//     object; each step is synced. So after a crash every row has its object.
//  2. An object of up to 1 MiB is hashed each time it is read from the disk, and a larger one was
//     hashed or written by this process before it is read.
//  3. Objects and reserved room together stay below edge.cas.max_bytes and leave edge.cas.min_free
//     and a headroom free on the disk. Reserved room that no work needs is given up first, then
//     unpinned objects are evicted in the order of their last use. If that would not free enough,
//     no object is evicted.
//  4. A damaged row fails neither the start nor a read of another row. It is dropped, logged and
//     counted, the other rows are made consistent, and the file of an object without a row is set
//     aside.
//  5. A pin lasts through eviction, damage, restart and restore, until it is removed, or until its
//     object grows beyond edge.cas.max_pinned.
//  6. A row without a file is a miss only after the other members of the cluster were asked. Verify
//     drops no such row while a member does not answer.
//  7. Before Recover nothing is written.
//
// # Tasks and queues
//
//   - cas_writer, 1: installs objects in bursts that share a sync, evicts, sets objects aside,
//     drops damaged rows
//   - scrubber, 1: reads all stored content again, slowly
//   - cas_tx, 64, tasks wait for room, others are refused: HTTP and tasks -> cas_writer
//
// The ticker scrub_tick merges missed ticks. The slots hashings bound the hashing of large objects
// to two at a time. The flight members joins fetches of one object from the other members.
//
// # Lock order
//
// The room and the mutex of faults are counters. No two locks are held together, but that the board
// of readiness is set with that of faults. The mutex of the hashed objects is a leaf.
package content
