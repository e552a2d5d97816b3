// Package rverify verifies a registry log from public data alone: every link of the content,
// artifact and audit chains, every quorum with the signer set in force, the Merkle root of every
// version, the stored signer sets, and HEAD. It trusts only the hash of genesis, or a state that it
// verified before. It does not write.
//
// # Invariants
//
//  1. A Verifier accepts a version only after a complete check. After a Problem it accepts no more.
//  2. A changed byte of an entry, a payload, an audit record, a signer set or HEAD is a Problem,
//     and so is a missing, an extra or a swapped one. An error of the reader is a Problem too.
//     A followed log has no audit records, and an extra one is a Problem.
//  3. A Step is bounded by the number of versions it is given, and keeps no bytes of the reader.
//
// # Tasks and queues
//
// None. Callers drive it, and pass in the function that runs work concurrently.
//
// # Lock order
//
// None: a Verifier serves one goroutine at a time.
package rverify
