// Package node provides the verbs that create, run and inspect a node, and those for its
// configuration.
//
// # Invariants
//
//  1. A running node can be reached even if its configuration has a fault.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package node
