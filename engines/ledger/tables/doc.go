// Package tables is the file format of the ledger: its buckets, the bytes of their rows, reads over
// a store.Reader, the walk through an account's history, and Derive, which computes the changes
// that a record makes to the derived tables.
//
// # Invariants
//
//  1. The buckets of journal, batches, meta and moved are authoritative. All other buckets can be
//     rebuilt from them, including ledger/flush, which records how far the derived buckets lag. So
//     the state hash, which covers only authoritative buckets, does not depend on flushes. A record
//     does not show whether it counted against the ceiling of a token, so the command that moves an
//     amount also writes the row of ledger/moved. Rows of past days are deleted.
//  2. A row is a version byte and a fixed binary form. The bytes of a version never change.
//  3. Derive is a pure function of a record and the rows before it. It skips a row that already
//     includes the record. So deriving records again, any number of times, changes nothing,
//     provided that the repetition ends with the newest record that any row includes.
//  4. A row of ledger/recent is newer than the row of the same key in ledger/state, and replaces it
//     for a reader of the file.
//  5. The row of a balance counts its postings. The marks up to that count are written before the
//     row or in the same command.
//  6. A hold is in the order of expiry exactly while it is open.
//  7. Each batch header is in the file once: in ledger/batches up to the last number that is a
//     multiple of TailBatches, else in the row of the head. So the file is a function of the
//     records.
//  8. A ledger has begun if ledger/meta has a row, or if there is a record or a header. Then the
//     rows format and store_key exist. With a record or a header, the row head exists, too. Names
//     other than these and doubt do not exist. Anything else is damage.
//  9. The content of a page of history does not depend on the size of its slices, and the pages
//     after it do not depend on later postings.
//  10. A reference is in ledger/once, or in a block of ledger/closed with the number of its closed
//     period. It moves in one command, so no view has it in neither.
//
// # Tasks and queues
//
// None: reads run in the caller's view, writes in the caller's command.
//
// # Lock order
//
// None: only immutable declarations are shared.
package tables
