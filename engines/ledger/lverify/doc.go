// Package lverify verifies a ledger through a store.Reader: the sequence of the journal, the place,
// bytes and arithmetic of each record, the batches, the chain of their roots, and the derived
// tables. It also verifies an export by its lines, imports an export, and rebuilds the derived
// tables.
//
// # Invariants
//
//  1. A full check without findings proves that journal, batches and head are unchanged since their
//     commit, or replaced as a whole, with other roots.
//  2. Each image of a record is the image before it plus the record's change, and at most one
//     record follows an image: no state is forked.
//  3. Each derived row is as the records make it; no row is missing or extra. The check first
//     completes rows that are not flushed. If an account or a balance has two rows, the one in
//     ledger/recent is the newer, and the other matches an earlier record.
//  4. A finding names the record or the batch and the difference. Damage never causes a panic.
//  5. Memory: 17 bytes an account, some 60 MB for states, 200 bytes for each row in two tables, 150
//     bytes for each open hold, and the rows that a crash left unflushed. An export takes some 450
//     bytes for each account and asset in it. Counts read from the input are not trusted.
//  6. An import makes the same records, batches and roots as its export, in an empty ledger or in
//     one that is a prefix of the export.
//  7. A check of the newest batches proves those, and reads the past from the journal or the
//     tables. A contradiction to an earlier nonce, flag or state may go unnoticed; only a full
//     check finds all.
//  8. An interrupted rebuild leaves a ledger that opens: missing rows count as not flushed, and no
//     idempotency key is lost.
//
// # Tasks and queues
//
// None. Import and Rebuild send ledger.* commands through the given store, one at a time.
//
// # Lock order
//
// None.
package lverify
