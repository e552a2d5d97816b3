// Package ledger holds the bodies of the ledger's routes, and Client, which calls them.
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//  2. Proofs are returned as the bytes of the node, because a verifier hashes them.
//  3. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package ledger
