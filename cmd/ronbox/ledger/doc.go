// Package ledger holds the verbs of the journal under the wallet: to prove it, check it and carry it away.
//
// # Invariants
//
//  1. What a node says of its ledger is believed as far as it is proven.
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
