// Package store is the node's one file: its tables, its read views, and the committer, the only goroutine that writes.
//
// A mutation is a Command. Commit puts it into a lane; the committer groups what waits, applies each command over buffered Writes, merges
// the buffers of those that returned nil into one bbolt transaction, syncs twice, runs the after hooks and answers. Reading is a View.
//
// # Invariants
//
//  1. A success was synced before it was answered: it survives a kill, a kernel crash and, on an honest disk, a power cut.
//  2. A command that returns an error or panics leaves no trace: the group is as if the command had never been in it.
//  3. Stamps grow strictly over the life of the file, and a refused command takes none.
//  4. After a failed sync nothing succeeds: the store is poisoned, reads and writes end in ErrPoisoned, and the process must end.
//  5. A command dropped while queued (cancelled, late) has written nothing.
//  6. Only allow-listed commit errors (a full disk) are called clean; every other one poisons.
//  7. The same commands in the same order give one StateHash, however they were grouped.
//  8. A command touches only buckets that its engine, the word before the dot of its Kind, declared.
//  9. Audit rows are a hash chain written in the transaction of the change they tell of.
//  10. One process has the file open, or is making one in its folder; a second one is told who.
//  11. A snapshot has its name only once it was verified; a restored file takes no work until AcceptRestore.
//  12. A file without room, on the disk or below max_bytes, is read as before, can be deleted from, and takes work again once there is room.
//  13. An older file is migrated behind a verified snapshot; interrupted anywhere, the migration ends in the state of one that was not. A
//     program of the old schema refuses the half of it.
//  14. A compaction replaces the file only by one that holds the same rows, and never takes it back: a node may have it by then.
//  15. A store in memory writes to no path.
//  16. A boot believes the disk, not the page cache; whatever writes to the file, a migration too, first says in it that it is in use.
//
// # Damage
//
// bbolt's pages have no checksum, so rows carry their own proof. This is how a damaged row is found and what it costs:
//
//	bucket      proof of a row                        a damaged row
//	meta        checksum                              the file is refused: exit 65
//	audit       hash chain                            the file is refused by db verify; a boot that meets it exits 65
//	auth        checksum                              exit 65
//	ledger/*    checksum, hash chain, Merkle log      exit 65, or safe mode: reads only
//	reg/*       hashes, signatures, else checksum     the registry is shut out, or the row is computed again
//	rw/*        checksum                              its run or upload is refused
//	edge/*      checksum                              the row is dropped: its object is fetched, its pack verified again
//	index/*     checksum                              its key answers 500
//
// `ronbox db verify` reads every row of every bucket and exits 3 if one is damaged.
//
// # Tasks and queues
//
// The task committer (Never: when it ends early the process ends) reads three lanes: store.control 64, store.work 2048 and store.bulk 16.
// Commit waits for a place until its ctx ends, TryCommit does not wait, and Hand waits for the place alone, not for the answer. A ticker,
// store.heartbeat, lets a slow store probe itself and has the free space looked at.
//
// # Lock order
//
// none among goroutines: the committer owns the write transaction, and what others read of it (Info, Health, Err, Stats) is atomic. Files are
// locked folder first, then the file.
package store
