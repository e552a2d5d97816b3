// Package ledger implements the CLI verbs of the wallet's journal: proof, verification and export.
//
// # Invariants
//
//  1. A statement of a node about its ledger is shown as true only if it is proven.
//  2. An export holds each line once, in order, however often its connection breaks.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package ledger
