// Package rverify checks a registry log with nothing but public data: every link of the content, artifact and audit chains, every quorum
// with the signer set in force, the Merkle root of every version, the signer sets as stored, and HEAD. It trusts the hash of genesis, or a
// state it verified before, and nothing else; it cannot write.
//
// # Invariants
//
//  1. What a Verifier has accepted was checked whole; after a Problem it accepts nothing more.
//  2. A byte of an entry, a payload, an audit record, a signer set or HEAD that differs from what was committed is a Problem, and so are a
//     missing, an extra or an exchanged one. An error of the reader is one too: what cannot be read cannot be vouched for.
//  3. A Step is bounded by the number of versions it is given, and keeps no bytes of the reader.
//
// # Tasks and queues
//
// none: callers drive it, and lend it their way to run work side by side.
//
// # Lock order
//
// none: a Verifier serves one goroutine at a time.
package rverify
