// Package rewarder holds the verbs of the rewarder: to have an epoch computed and paid, to see and prove what came of it, and to compute and check
// it again from files alone.
//
// # Invariants
//
//  1. A run that is repeated pays nobody twice: the node is asked first for what stands in the epoch, and what was sent is not sent anew.
//  2. Whatever depends on usage, policy and pool is computed here before anything is sent, apart from the node's engine.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package rewarder
