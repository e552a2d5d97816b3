// Package index holds the verbs of the index: to publish names and providers, to ask for them, and to look at the peers that are asked.
//
// # Invariants
//
//  1. A file of names or contents may be sent again after it broke off: each of its lines is idempotent.
//
// # Tasks and queues
//
// none: the lines of a file are sent by a few goroutines, which the verb joins.
//
// # Lock order
//
// none
package index
