// Package registry implements the verbs of the registry: sign, change, read and verify.
//
// # Invariants
//
//  1. Only sign, approve, genesis, init and apply read a private key. It never leaves the process.
//  2. A verb never signs data on the word of the node alone: it first checks the answers of the
//     node against hashes that were signed earlier.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package registry
