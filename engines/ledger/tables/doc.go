// Package tables is the file format of the ledger: its buckets, the bytes of their rows, reads over
// a store.Reader, the walk through an account's history, and Derive, which computes the changes
// that a record makes to the derived tables.
//
// # Invariants
//
//  1. Journal, batches, meta and moved are the truth. All other buckets can be rebuilt from them,
//     including ledger/flush, which records how far they lag: the hash of the truth does not depend
//     on flushes. Records do not show whether they counted against the ceiling of a token, so the
//     command that moves an amount writes the row of ledger/moved. Rows of past days are deleted.
//  2. A row is a version byte and a fixed binary form. The bytes of a version never change.
//  3. Derive is a pure function of a record and the rows before it. A row that has seen the record
//     already is left alone, so taking any stretch of records again, once or many times, up to the
//     newest one that any row has seen, changes nothing.
//  4. A row of ledger/recent is newer than the row of the same key in ledger/state, and stands
//     before it for a reader of the file.
//  5. The row of a balance counts its postings. The marks up to that count are written before the
//     row or in the same command.
//  6. A hold is in the order of expiry exactly while it is open.
//  7. Each batch header is in the file once: in ledger/batches up to the last number that is a
//     multiple of TailBatches, else in the row of the head. So the file is a function of the
//     records.
//  8. A page of history does not depend on the size of its slices, and the pages after it do not
//     depend on later postings.
//
// # Tasks and queues
//
// None: reads run in the caller's view, writes in the caller's command.
//
// # Lock order
//
// None: only immutable declarations are shared.
package tables
