// Package edge holds the bodies and the refusals of the routes to the edge, and Client, which calls
// these routes.
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//  2. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package edge
