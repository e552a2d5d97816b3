// Package record implements the formats that the registry hashes, signs and stores: canonical
// bytes, descriptors and their Merkle root, payloads, signer sets, approvals, log entries and audit
// records. It is pure: it uses no clock, no I/O, and only the randomness that a caller passes in.
//
// # Invariants
//
//  1. A value has one form in bytes: RFC 8785 JSON narrowed to integers within ±(2^53-1), without
//     null, duplicates, lone surrogates or more than MaxDepth levels. Parse functions accept any
//     spelling of a value and keep the canonical one; Bytes never returns another.
//  2. A number literal is checked before it is canonicalised, so that no number is rounded.
//  3. A parsed value obeys every rule that needs no other value. Payload.Check and
//     SignerSet.Validate add the rules that need the history.
//  4. Items are sorted by id and never change. Apply returns a new set that shares the unchanged
//     leaves.
//  5. A quorum counts distinct public keys, never ids or signatures.
//  6. A public key in a non-canonical encoding or of small order is refused.
//
// Values that carry canonical bytes (Item, Payload, SignerSet, Artifact, Audit) must not be
// modified after they were parsed or built.
//
// # Tasks and queues
//
// None: every function returns when its work is done.
//
// # Lock order
//
// None: all values are immutable once built.
package record
