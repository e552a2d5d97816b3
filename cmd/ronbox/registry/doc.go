// Package registry implements the verbs of the registry: sign, change, read and verify.
//
// # Invariants
//
//  1. Only sign, approve, genesis, init and apply read a private key. It never leaves the process.
//
//  2. A claim of the node alone is never signed: its answers are checked against hashes that were
//
// signed before.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package registry
