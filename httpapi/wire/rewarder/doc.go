// Package rewarder holds the table of the refusals of the rewarder.
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package rewarder
