// Package rewarder implements the verbs of the rewarder: compute and pay an epoch, show and prove
// its results, recompute and verify a run from files alone, sign and add policies, and rewrite the
// files of a run.
//
// # Invariants
//
//  1. Repeating a run pays no actor twice: the verb first asks the node for the run of the epoch,
//     and does not repeat an upload.
//  2. Everything that depends only on usage, policy and pool is computed here before anything is
//     sent, by code that is independent of the node's engine.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package rewarder
