// Package record defines the values of the ledger and their bytes: journal records, batch headers,
// receipts, proofs and the lines of an export. It uses no clock, no I/O and no randomness.
//
// # Invariants
//
//  1. A value has one byte form. Decoders refuse every other form: an unknown version or op, a bad
//     checksum, trailing bytes, a part that is present but empty, a name or a key outside its
//     grammar. Decode returns a record equal to the one that Append wrote. Append panics on a
//     record that Decode would refuse, because such a record would keep the ledger from starting.
//  2. The bytes of a version never change. A new layout gets a new version, and all versions can be
//     read. The same holds for the renderer of receipts, which has the version of the record: a
//     replay has the bytes of the first answer, whichever release renders it. Records do not store
//     the hash of their receipt: the record's checksum and the batch's root cover the receipt's
//     members, and golden vectors pin the renderer.
//  3. Numbers of ops, results and flags are stored and never reused.
//  4. An image in a record is the state after it: its LastSeq is the record's Seq, its Asset the
//     record's. A record has at most one image of an account.
//  5. A batch's Merkle tree and the log of batch roots are trees of package merkle.
//  6. A Proof that verifies binds every member of it: the receipt, the names in it and the head.
//     A record refers only to earlier records, so later records never change the meaning of an
//     earlier one. A ref that the statement of a Proof counts has its name from the log of names,
//     any other from a record.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package record
