// Package rewarder holds the bodies and the refusals of the routes to the rewarder, and Client,
// which calls these routes. Answers are documents of engines/rewarder/document.
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
