// Package node holds the verbs about a node: to make and run one, to see how it is, to look at its configuration and
// at its tasks.
//
// # Invariants
//
//  1. A configuration with a fault keeps nobody from a node that runs.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package node
