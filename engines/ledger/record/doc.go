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
// # Period files
//
// A reader without ronbox verifies a ledger's closed periods with what follows. Numbers in bytes
// are little-endian, but for keys of base rows; times are ns since 1970; an amount has 16 bytes. A
// digest is BLAKE3 with 32 bytes, in JSON "b3:" and hex. H(x) is the digest of x.
//
// A tree has the shape of RFC 6962: a leaf is H(0x00 | content), a node H(0x01 | left | right), the
// left side of a node is full and as large as possible. A peak is the root of such a full side of a
// log; the last peaks fold from the right into the root.
//
// A record has a head of 80 bytes: version 1 or 2, op 1, flags 2, parts 2, random bits 2, seq 8,
// batch 8, time 8, asset 4, number of images 1, length of key 1, length of memo 1, flags of an
// account 1 (those set, those cleared << 4), amount 16, from 8, to 8, nonce 8. The bits of parts,
// the lowest first, say what follows: principal 8 and token 8; kind 1, key 16 and fingerprint 32;
// guard, a key 16 and its owner 16; seq of the hold 8; time of expiry 8; results of a batch, with
// part 2, parts 2, length 2; name, with length 2. Then come key, memo, images, and the CRC-32C of
// all before it. An image has 100 bytes: account 8, five amounts (credits posted, debits posted,
// debits held, credits held, debits of the day), day 4, seq of the record before that touched this
// balance 8. It is the balance after the record. The ops are those of [Op]. From is the first
// image, To the second; a hold moves debits held and credits held, all else posted sums. The id of
// a record is its time in ms 6, seq 8, random bits 2, big-endian.
//
// A header has 104 bytes: version 1 and three zeros, number 8, first seq 8, count 8, time 8, root
// of the tree over its records, root of the batch before, CRC-32C. The root of a batch is BLAKE3's
// key derivation with the context "ronbox ledger batch v1" over the first 100 bytes. The log is the
// tree over the roots of all batches. The log of names is a tree over leaves with the content H('a'
// | ref 8 | name) of accounts and H('s' | ref 8 | name) of assets, big-endian: for each period the
// accounts that it opened, then the assets that it declared.
//
// A file is one zstd frame of JSON lines: the opening, with the statement of the period before; the
// base, which is the state at its beginning; for each batch its records, then its header; the
// statement of the period. The statement's digest is H of its text, prev is that of the one before.
// Its references are the records from [OpIssue] to [OpExpire] that have a guard. Its state_root is
// H over the rows of the base that the next period begins with, in the order of the file: kind 1,
// length of key 4, length of row 4, key, row. Keys are big-endian. The lines of the base and their
// rows, each of which begins with a version byte that is 1:
//
//   - account: kind 'a', key ref 8. Its last nonce 8, seq that used it 8, seq that opened it 8, seq
//     that changed it 8, flags 1, time that opened it 8, id of the record that used the nonce 16.
//   - balance: kind 'b', key ref 8, asset 4. Five amounts and the day as in an image, seq of the
//     last record that touched it 8, 1 and three zeros, number of records that have touched it 8.
//   - hold: kind 'h', key seq 8, for each hold that is open. Place of its record in its batch from
//     0 on 8, header 104, number 1 and digests of the path to the root of the batch's records,
//     number 1 and digests of the path from the batch to the peak over it, the record.
//   - guard and once: kind 'o', key 'g' or 'o' and 16 bytes, in this order. Seq 8 of the [OpOnce]
//     that bound it first and is no part of a batch, and the owner and 16 zeros, or the
//     fingerprint.
//   - asset: kind 's', key ref 4. Seq that declared it 8, time 8, seq that set its decimals 8,
//     decimals 1.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package record
