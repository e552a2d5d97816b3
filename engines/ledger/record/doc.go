// Package record holds the values of the ledger and their bytes: journal records, batch headers, receipts,
// proofs and the lines of an export. It is pure: no clock, no I/O, no randomness but what a caller hands in.
//
// # Invariants
//
//  1. One value has one byte form. Decoders refuse every other: an unknown version or op, a bad checksum, trailing bytes, a part that is
//     present but empty, a name or a key outside its grammar. What Append wrote Decode reads back equal, and Append panics on a record
//     that Decode would refuse: it would close the ledger at the next start.
//  2. The bytes of a version never change; a new layout is a new version beside it, and all are read. The same holds for the renderer of
//     receipts, whose version is that of the record: a replay gives the bytes of the first answer, whatever program renders it. No record keeps its receipt's hash to be compared: the
//     record's checksum and the batch's root hold what the receipt is made of, and golden vectors hold the renderer.
//  3. Numbers of ops, results and flags are stored and never reused.
//  4. An image in a record is the state after it: its LastSeq is the record's Seq, its Asset the record's. No two images of a record are
//     of one account.
//  5. A batch's Merkle tree and the log of batch roots are trees of package merkle.
//  6. A Proof that verifies binds every member of it: the receipt, the names in it and the head. What the record
//     refers to came before it: nothing that is appended later makes an old record say something else.
//
// # Tasks and queues
//
// none: every function returns when its work is done.
//
// # Lock order
//
// none: nothing is shared.
package record
