// Package ledger is a double-entry journal of money, with the balances, names, holds and proofs
// that follow from it. Callers use a [Client]; [Local] is the one over the node's store.
//
// A write has two steps. Prepare runs in the caller's goroutine: it checks the op, hashes and looks
// up its key and reference, and reads the rows that are not in memory. Submit queues prepared ops
// as one command, which the store's committer applies. Commit does both.
//
// A command decides its ops in order, appends their records and evolves the rows (decide.go and
// evolve.go). A boot evolves the rows from the same records. Each command that writes creates one
// batch of the ledger, so batch roots do not depend on how the store groups commands. The command
// writes only records, a header and the head. Changed rows stay in memory and are flushed to their
// tables later, in key order. A command is never stored or sent: it carries pointers and has no
// encoding.
//
// Rows and names that were read or flushed stay in memory within a budget of bytes
// (cache_bytes). What was used again since eviction last looked stays for another round. The rows
// lie outside of Go's heap (package slab).
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-19.
//
// # Terms
//
// A record is one entry of the journal, numbered by its seq. A ref is the number of an account or
// an asset. A row is an entry of a derived table. A flush writes changed rows to their tables. A
// key is an idempotency key, which counts for its TTL, and longer for an hour after a boot or a
// step of the clock, which may be wrong then; a reference and the id of a settlement count for
// ever. Safe mode serves reads only. The tip is the newest published head. The horizon is the last
// record of the last closed period, always the end of a batch; the base is the state after it.
//
// # Invariants
//
//  1. The journal is authoritative. All other tables are derived from it, may be older than it, and
//     are completed from it at open.
//  2. Apply is a function of state and command. Limits, lifetimes and random bits are in the
//     command; time and seq are its stamp.
//  3. Apply makes every check that protects money, in one fixed order. A refusal changes nothing
//     and is an outcome, not an error.
//  4. Every op debits and credits the same amount of one asset. Only an issuance account may have a
//     negative balance. Apply panics otherwise, and the command writes nothing.
//  5. While a key counts, a repetition of the op with the key gets the outcome of the first one and
//     changes nothing. Another op with the key is refused with idem_conflict.
//  6. Readers see the changes of a group only after its sync, and before its callers are answered.
//     They never see the changes of a group that failed.
//  7. A changed row leaves memory only after a commit has written it to its own table. A row in the
//     table of recent rows is always in memory too. A view that begins after a miss in memory is
//     never older than memory.
//  8. The time of a flush changes no record, root, balance or hash.
//  9. A command may still be applied after its caller has left. Until its outcome is known, no
//     other call with one of its keys or references reports that its op was not applied.
//  10. A journal with contradictions is read and never written. A note in the file keeps the ledger
//     in safe mode until a start has verified everything.
//  11. A row that a caller has read is used only if no row changed by a later record has left
//     memory since.
//  12. A row of the file is used only if its checksum matches. Records, headers, rows and the
//     blocks of sealed keys have one; the filter of a run has a digest. Exceptions: the number of
//     the format, the note of safe mode, and the progress of a run that is being sealed.
//  13. A missing row counts as absent only if no other row or record requires it. An account with a
//     ref requires a row, and so does a hold with a record. A balance requires a row if the record
//     after its account's opening, or the record of the account's last nonce, posted to it. If a
//     required row is missing, the file is damaged. The same holds for the rows of ledger/meta: a
//     new key of the idempotency index is drawn only if there is no record, no header and no row of
//     ledger/meta. In safe mode nothing counts as absent: what is not found is an error.
//  14. The amount that a token moves under a daily ceiling is counted by token id, asset and UTC
//     day, and written with the records that moved it. The rows of a past day are deleted. An
//     import has no such rows, because tokens belong to one node.
//  15. The first accepted op of a principal with a reference binds the reference for ever. A later
//     op under it is never executed. It gets the outcome of the first op if both have the same
//     words: code, parties, asset, amount, memo, hold, lifetime of a hold, and valid_until. Nonce
//     and key are not compared. If the words differ, the op is refused with reference_conflict. A
//     refused op binds nothing. If a closed period has the first op, the later one is refused with
//     period_closed, whatever its words. A settlement of a closed period counts as done, and has no
//     receipts.
//  16. If an op has both a key and a reference, the key is looked up first. If the key counts, the
//     op gets the outcome of the key's record, whatever its reference. If the key is new and the
//     reference is bound, the op gets the outcome of the reference, and the key stays new.
//  17. The references of a batch's ops belong to the principal of the batch. An op that was
//     executed before counts as executed, even in an atomic batch. A batch is not recorded if each
//     of its ops was executed before or is refused.
//  18. From the expiry of a hold on, by the clock, all calls agree that it has ended: a write, and
//     a read of holds or balances, first ends the holds that are overdue. A ledger that cannot
//     write shows them open.
//  19. The decimals of an asset are set at most once, by an OpScale, and change no amount, proof or
//     record: they say how people read the minor units of every other record.
//  20. Rows at or below the horizon may be there or not: a read decides by the horizon of its view.
//     What it asks for below is a *ClosedError. What later records need of those below is in the
//     base, which is as authoritative as the journal: a row of it that is missing is damage. All
//     rows have seen the records up to the horizon. No key of an op leads to one of them.
//
// # Tasks and queues
//
//   - flusher: one task, producer of store.bulk. A change waits for flush_after, then for a payment
//     that flushes in its own commit, then the flusher begins a pass: a slice at each flush_tick.
//     It does not wait if many rows do, flushes larger slices if a boot would have too many records
//     to redo, and flushes rows that no longer change after a few passes. It does not tick while
//     there is nothing to do.
//   - unflushed: watch; committer, the first change of a rest -> flusher.
//   - sealer: one task, producer of store.bulk. It seals closed slots of the idempotency index and
//     drops old runs, at each seal_tick (one second, because slots close early under load).
//   - expirer: one task, producer of store.bulk. It ends overdue holds at each expire_tick, in the
//     order of a table by time, if no call has done so. The calls, or the expirer, do so one at a
//     time.
//   - ledger_bus: broadcast, 1024 events, drops the oldest; committer, after the sync -> every
//     subscriber.
//   - reached: watch of the newest record; the reader that follows ledger_bus -> readers that wait
//     for a record.
//   - flush_tick, seal_tick, expire_tick: tickers; missed ticks merge.
//
// Ops enter store.work from their callers' goroutines. A boot completes the work that a task has
// not done, so the tasks stop with the intake and no caller waits for them.
//
// # Lock order
//
// None: only the committer uses its state. The shards of the layers in memory and of the cache of
// names, the keys of abandoned commands (strays), the count of calls and the earliest expiry of a
// hold (soonest) each have a leaf lock, which is held for one access.
package ledger
