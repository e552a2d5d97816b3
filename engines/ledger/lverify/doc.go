// Package lverify verifies a ledger through a store.Reader: the sequence of the journal, the place,
// bytes and arithmetic of each record, the batches, the chain of their roots, and the derived
// tables. It also verifies an export and the files of closed periods by their lines, imports them,
// rebuilds the derived tables, and finds and proves records in the files of closed periods.
//
// # Invariants
//
//  1. A full check without findings proves that journal, batches and head are unchanged since their
//     commit, or replaced as a whole, with other roots.
//  2. An image of an account in a record equals the account's previous image plus the change made
//     by the record. No two records follow the same image, so the history of an account has no
//     fork.
//  3. Each derived row equals the row computed from the records; no row is missing or extra. The
//     check first completes rows that are not flushed. If an account or a balance has two rows, the
//     one in ledger/recent is the newer, and the other matches an earlier record.
//  4. A finding names the record or the batch and the difference. Damage never causes a panic.
//  5. Memory: 17 bytes an account, about 60 MB for states, 200 bytes for each row in two tables,
//     150 bytes for each open hold, and the rows that a crash left unflushed. An export takes about
//     450 bytes for each account and asset in it, the files of periods 600, and 40 bytes for each
//     reference. Counts read from the input are not trusted.
//  6. An import makes the same records, batches and roots as its export, in an empty ledger or in
//     one that is a prefix of the export. Files of closed periods and the export after them count
//     as one export: the ledger has all records, and none of its periods is closed.
//  7. A check of the newest batches proves only these batches. It reads earlier values from the
//     journal or the tables, so it may miss a contradiction to an earlier nonce, flag or state.
//     Only a full check finds every contradiction.
//  8. An interrupted rebuild leaves a ledger that opens: missing rows count as not flushed, and no
//     idempotency key is lost. With closed periods the ledger counts as damaged until another
//     rebuild.
//  9. A check of a ledger with closed periods begins after the horizon, with the base as its past.
//     The statements follow one another, the last one has the root of the base and the peaks of the
//     log, and its digest is in a record after the horizon. Rows of closed periods that are not
//     dropped yet count for nothing. A rebuild begins with the base, and keeps the names and
//     references up to the horizon, which no other table has.
//  10. The files of all periods, in order, and the database or an export after them prove every
//     record since the first: chain, sums, states, names, and that no reference or permanent id is
//     bound twice. A file alone proves its period, if its opening is believed.
//  11. A proof made of files of closed periods is the one that a ledger without closed periods
//     makes of the same record at the end of its period.
//
// # Tasks and queues
//
// None. Import and Rebuild send ledger.* commands through the given store, one at a time.
//
// # Lock order
//
// None.
package lverify
