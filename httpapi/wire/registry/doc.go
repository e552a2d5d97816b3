// Package registry holds the bodies and the refusals of the registry, and Client, which calls its
// routes.
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//  2. The members of Head are those of the engine's Head, in the same order.
//  3. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package registry
