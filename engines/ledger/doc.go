// Package ledger keeps who has how much of what: a double-entry journal, and all that follows from it. Its users speak to a Client; Local is
// the one over the node's store.
//
// One command is one batch of the ledger, so roots do not depend on how the store groups commands. It appends records, a header and the head,
// and nothing else: balances, names, holds and the nodes of the log are kept in memory and written behind, in key order. Callers that come
// while a command waits for its turn have a share in that command; each leaves or stays for himself. A command is never stored nor sent, so it
// carries its callers and rows by pointer and has no encoding; what it is decided by is immutable all the same.
//
// Its rules are due for review every 90 days, next on 2027-02-19.
//
// # Invariants
//
//  1. The journal is the truth. Whatever else the file has is derived from it, may lag, and is redone from the journal at open.
//  2. Apply is a function of the state and the command: limits, lifetimes and random bits are in the command, time and number are its stamp.
//  3. Every check that protects money is made in Apply, in one fixed order. A refused op changes nothing and is an outcome, not an error.
//  4. Every op debits what it credits, in one asset; only an issuance account may owe. An op for which that is not so never gets out of Apply.
//  5. A key is answered with the outcome it had while it counts, whatever happened in between; a permanent id for ever.
//  6. What a group changed is seen by readers after its sync and before its callers are answered, or never.
//  7. A changed row leaves memory only after the commit that wrote it into its own table: what is in the table of recent rows alone is in memory,
//     always. A view begun after a miss in memory is never older than memory.
//  8. When rows are flushed changes no record, no root, no balance and no hash of the truth.
//  9. An op is queued once: a retry of one that is still on its way waits for it.
//  10. A journal that does not follow itself is read and never written: a note in the file keeps it so until a start has verified everything.
//  11. A row that a caller has read is believed only if no row that has left memory was changed by a record later than the caller had seen.
//  12. No row of the file is used that does not check: records, headers, rows and the blocks of sealed keys end in checksums, but for the number of
//     the format, the note of safe mode and how far a run is sealed; the chunks of a run's filter have a digest.
//  13. A row that is not there stands for nothing only if nothing says that it must be there: its neighbours check, an account that has a ref has a
//     row, as has a hold of which there is the record; a balance has one if the record for which its account was opened, or that of its last
//     nonce, posted to it. Else it is damage. (The pages of the file have no checksum: rows cut off a page by a changed count are not told.)
//  14. What a token moves under a daily ceiling of its own is counted by the token's id, the asset and the UTC day, and written with the records
//     that moved it. The rows of a day go when it is over. An import has none: tokens are of one node.
//
// # Tasks and queues
//
// Tasks: flusher (writes changed rows behind), sealer (closes and drops slots of the idempotency index), expirer (ends holds whose time is
// over), each a producer of store.bulk. What they do is made up for at the next open, so they end with the intake and nobody waits for them. The
// flusher writes more rows a slice than configured when a boot would otherwise have too much to redo, and nothing while there are only rows at rest,
// which it takes home after some ticks. The sealer looks each second, since slots
// close early under load. Holds end in the order of a table by time, which a crash does not empty as it would a heap. Ops go through store.work in their callers' goroutines. Broadcast: ledger_bus 1024 (drop oldest),
// published by the committer after the sync; an event has a bound of its own. Watch: reached, the newest record, for readers who wait for one: one of
// them follows the bus and tells the others. Ticks: flush_tick, seal_tick, expire_tick (missed ticks merge).
//
// # Lock order
//
// none: what the committer owns it alone changes; shards of the layers in memory, the table of pending ops and the command that waits have a
// leaf lock each, held over one access of a map or a list.
package ledger
