// Package index implements the verbs of the index: publish names and providers, look them up, and
// show peers.
//
// # Invariants
//
//  1. A file of names or contents can be sent again after a failure: each of its lines is
//     idempotent.
//
// # Tasks and queues
//
// None. A few goroutines send the lines of a file, and the verb joins them.
//
// # Lock order
//
// None.
package index
