// Package wallet holds the verbs of the wallet: to hold, move and look at money, one operation or a file of them.
//
// # Invariants
//
//  1. What changes money prints its idempotency key before it is sent, and is sent again under no other while an answer
//     to it is missing: whatever is lost, it is done once.
//  2. A row of a batch file is done once for each name of a run, whatever its state file shows or lacks.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package wallet
