// Package registry holds the verbs of the registry: to sign, change, read and check it.
//
// # Invariants
//
//  1. A private key is read by sign, approve, genesis, init and apply only, and never leaves the process.
//  2. Nothing is signed that the node merely claims: what it sends is held against hashes that were signed before.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package registry
