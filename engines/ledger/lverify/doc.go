// Package lverify proves a ledger with a store.Reader alone: the journal without gaps, each record's place, bytes and arithmetic, the batches and
// the chain of their roots, and every table that is derived from them. It proves an export by its lines alone too, makes a ledger of one, and
// makes the derived tables of a ledger again.
//
// # Invariants
//
//  1. A whole check ends without a finding only if every byte of journal, batches and head is as it was committed, or the whole of it was
//     made up anew with all digests, which gives the log another root.
//  2. Each image of a record is the image before it and the record's change, and is followed by one record at most: no state was forked.
//  3. Each derived row is what the records make of it, none is missing and none is too many; what is not flushed yet is redone first. Of two
//     rows of one account or balance the one in ledger/recent is the newer, and the other is what the records made once.
//  4. A finding names the record or the batch and says what differs. Damage never panics, whatever it is.
//  5. Memory: 17 bytes an account, some 60 MB for states, 200 bytes a row that two tables have, 150 bytes a hold that is open, and what a crash
//     left unflushed. An export needs some 450 bytes for each account and asset in it, since it has no table to look back into. Neither
//     trusts a count that it reads.
//  6. An import makes the same records, batches and roots as its export has, in an empty ledger or in one that is how the export begins.
//  7. A check of the newest batches proves them and takes the past from the journal and, where a row is older than they are, from the tables:
//     a nonce used, a flag set or a state followed before them may go unseen, and only the whole check ends every doubt.
//  8. A rebuild that was interrupted leaves a ledger that opens: what is not made again yet counts as not flushed, and no
//     idempotency key is forgotten.
//
// # Tasks and queues
//
// none: callers drive it. Import and rebuild send ledger.* commands through the store that they are given, one at a time.
//
// # Lock order
//
// none: nothing is shared.
package lverify
