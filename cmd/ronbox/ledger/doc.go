// Package ledger implements the CLI verbs of the wallet's journal: proof, verification and export.
//
// # Invariants
//
//  1. A verb shows a statement of a node about its ledger as true only if a proof of it verifies.
//  2. An export has each line once and in order, however often its connection breaks.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package ledger
