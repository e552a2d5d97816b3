// Package tables is the ledger as it lies in the file: its buckets, the bytes of their rows, reads over a store.Reader, the walk through an
// account's history, and Derive, the one place that says what a record of the journal means to the tables derived from it.
//
// # Invariants
//
//  1. Journal, batches, meta and moved are the truth; every other bucket can be made again from them, and what says how far they lag is itself
//     derived: the hash of the truth does not depend on when a flush ran. No record says whether it counted against the ceiling of a token, so
//     what tokens moved is written by the command that moved it, and goes when its day is over.
//  2. A row is fixed binary behind a version byte. The bytes of a version never change.
//  3. Derive is a pure function of a record and the rows before it. A row that has seen the record already is left alone, so taking any
//     stretch of records again, once or many times, up to the newest one that any row has seen, changes nothing.
//  4. A row of ledger/recent is newer than the row of the same key in ledger/state, and stands before it for whoever reads the file alone.
//  5. A balance's row counts its postings. Whoever writes the row writes the marks up to that count with it or before it.
//  6. A hold is in the order of expiry exactly while it is open.
//  7. Each header of a batch is in the file once: in ledger/batches, or, of the batches behind the last one whose number is a multiple of
//     TailBatches, in the row of the head. So the file is a function of the records, however commands brought them.
//  8. A page of history is the same however it is cut into slices, and the pages after it whatever was posted meanwhile.
//
// # Tasks and queues
//
// none: reads run in the caller's view, writes in the caller's command.
//
// # Lock order
//
// none: nothing is shared but immutable declarations.
package tables
