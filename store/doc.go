// Package store provides the node's database: one bbolt file with typed tables, read views, and a
// committer, the only goroutine that writes.
//
// A mutation is a [Command]. [Commit] puts it into a lane. The committer takes a group of queued
// commands, applies each of them to its own buffered [Writes], merges the buffers of the commands
// that returned nil into one bbolt transaction, syncs twice, runs the after functions and answers
// the callers. [Store.View] reads a consistent state.
//
// # Invariants
//
//  1. A command is synced before its success is answered. It survives a kill, a kernel crash and,
//     on a disk that honours syncs, a power cut. In a cluster its rows are in the log of a quorum,
//     too, and survive the loss of the node.
//  2. A command that returns an error or panics leaves no trace: the state is the same as if it had
//     not been in the group.
//  3. Stamps strictly increase over the life of the file. A refused command takes no stamp.
//  4. After a failed sync nothing succeeds: the store is poisoned, reads and writes return
//     ErrPoisoned, and the process must end. In a cluster any failure of a commit does so once a
//     quorum has the rows: the next life applies them from the log.
//  5. A command that is dropped while it is queued (cancelled, or late) has written nothing.
//  6. Only allow-listed commit errors (a full disk) are clean; every other commit error poisons the
//     store. A failed proposal does not: it deposes the node, and the file has no row of the group.
//  7. The same commands in the same order result in the same StateHash, whatever their grouping.
//  8. A command uses only buckets that its engine declared. The engine is the part of its Kind
//     before the dot.
//  9. Audit rows form a hash chain. A row is written in the transaction of the change it describes.
//  10. Only one process can open the file, or create one in its folder. A second process gets an
//     error that names the first.
//  11. A snapshot gets its name only after it was verified. A restored file accepts no work until
//     AcceptRestore.
//  12. If the disk is full, or the file has reached max_bytes, reads and deletions still succeed.
//     The store accepts other work again once there is space.
//  13. Migration of an older file first takes a verified snapshot. An interrupted migration can be
//     resumed and ends in the same state. A program of the older schema refuses a file once its
//     migration has begun to write. It does not move the file of a clustered node in the log.
//  14. A compaction replaces the file only by one with the same rows, and never undoes the
//     replacement, because a node may have opened the new file.
//  15. A store in memory writes to no path.
//  16. A boot reads the disk, not the page cache. Every writer, including a migration, first marks
//     the file as in use.
//  17. In a cluster a file holds only what a quorum has: the transaction of a group stays open and
//     unseen until the log of a quorum has its rows, and is rolled back if that is not known.
//  18. An entry moves the file once and in order: its rows, its place and the chain of all entries
//     are written in one transaction, and an entry that does not follow the file poisons the store.
//  19. The rows of bucket local belong to one copy of the file: they are never in an entry, and
//     StateHash does not cover them. With a row members the file is that of a clustered node, and
//     only a Store with a Replicator opens it for writing. A restored file has no such row.
//  20. A node that does not lead answers every command with ErrNotLeader. Nothing is queued or
//     written.
//  21. For each bucket that is not Proven, bucket local has the number of its rows and the sum of
//     the hashes of their keys. A transaction that adds or removes rows changes both by the
//     difference, so what is written later never hides a lost row.
//  22. A Tap gets the entries of every transaction of the committer, before it is committed, and
//     told of one that was rolled back. It delays a commit and refuses none. A snapshot and the
//     entries after it give every later state of the file, in all rows but those of bucket local.
//
// # Damage
//
// The pages of bbolt have no checksum, so the rows carry their own. The table shows how damage to a
// row is detected and what it causes:
//
//	bucket      proof of a row                        a damaged row
//	meta, local checksum                              the file is refused: exit 65
//	audit       hash chain                            db verify refuses the file; a boot that reads it exits 65
//	auth        checksum                              exit 65
//	ledger/*    checksum, hash chain, Merkle log      exit 65, or safe mode: reads only
//	reg/*       hashes, signatures, else checksum     the registry is shut out, or the row is recomputed
//	rw/*        checksum                              its run or upload is refused
//	edge/*      checksum                              the row is dropped; its object is fetched again
//	index/*     checksum                              its key answers 500
//
// `ronbox db verify` reads every row of every bucket and exits 3 if one is damaged.
//
// A row that is missing, or has another key than it was written with, is damage, too. It counts as
// "not begun" only if everything else in the file proves it:
//
//	bucket         proof that a row is missing             a missing row
//	meta, local    ident, position, clean: a boot reads    exit 65; without its count a bucket is
//	               them; buckets, names/…: row named       damaged
//	the file       each bucket that row buckets lists      exit 65
//	audit          numbers; position has the ends          exit 65 (a boot reads the last row)
//	auth           names                                   exit 65
//	ledger/meta    names; records, headers and rows need   safe mode
//	               format and store_key, records head
//	ledger/moved   names                                   safe mode
//	ledger/recent  names                                   safe mode, and no balance is read
//	ledger/flush   names                                   safe mode; a rebuild writes it again
//	ledger/*       the journal and its head                safe mode
//	reg/*, rw/*,   names                                   the service is shut out
//	edge/*, index/*
//
// A boot reads the names of a guest's bucket of at most 100,000 rows, and verifies the derived rows
// of a ledger of at most 16,384 records. Of larger ones only db verify finds every lost row. Rows
// of the edge that can be derived from others are written again, which counts their names anew.
//
// # Pages of a commit
//
// A commit never changes a page in place. It writes a new version of each leaf with a changed row,
// of the branches above it, of the leaves and branches of the directory of buckets above those (a
// bucket of less than a quarter of a page lies in the directory itself), the list of free pages, a
// leaf of bucket meta with the position, and, after a sync, one of the two meta pages of bbolt. A
// lone payment is 7 or 8 pages of 4 KiB: a leaf of the journal and one of the batches, with their
// branches once there are many, two of the directory, the position, the free pages, the meta page.
// A flush of the ledger is as many again, or three more in the commit of a payment: its leaf of the
// directory with the recent rows and the end of the pass, the log of batch roots, changed rows.
//
// # Tasks and queues
//
//   - committer: 1 task, never restarted; the process ends if it fails. It reads the three lanes.
//   - store.control: queue, 64 commands; callers of Commit -> committer.
//   - store.work: queue, 2048 commands; callers of Commit -> committer.
//   - store.bulk: queue, 16 commands, at most one in a group; callers of Commit -> committer.
//   - store.heartbeat: ticker, 1 s -> committer, which probes a slow store and checks the free
//     space.
//   - store.follow: queue, 1 call; only in a cluster: Follow -> committer, which applies the
//     entries of another node that leads.
//
// A full lane blocks Commit and Hand until their ctx ends, and refuses TryCommit with ErrBusy. Hand
// does not wait for the answer.
//
// # Lock order
//
// None among goroutines: the committer owns the write transaction, and the state that others read
// (Info, Health, Err, Stats) is atomic. The lock of the folder is taken before the lock of the
// file.
package store
