// Package record holds what the registry hashes, signs and stores: canonical bytes, descriptors and their Merkle root, payloads, signer sets,
// approvals, log entries and audit records. It is pure: no clock, no I/O, no randomness but what a caller hands in.
//
// # Invariants
//
//  1. One value has one byte form: RFC 8785 JSON narrowed to integers within ±(2^53-1), without null, duplicates, lone surrogates or more
//     than MaxDepth levels. Parse functions take any spelling of a value and keep the canonical one; Bytes never returns another.
//  2. A number literal is judged before it is canonicalised, so nothing is ever rounded.
//  3. What was parsed obeys every rule that needs no other object; Payload.Check and SignerSet.Validate add the rules that need the past.
//  4. Items are sorted by id and never change; Apply answers a new set that shares the leaves it did not touch.
//  5. A quorum counts distinct public keys, never ids or signatures.
//  6. No public key is accepted that is encoded in a non-canonical way or has small order.
//
// Values that carry canonical bytes (Item, Payload, SignerSet, Artifact, Audit) must not be modified after they were parsed or built.
//
// # Tasks and queues
//
// none: every function returns when its work is done.
//
// # Lock order
//
// none: all values are immutable once built.
package record
