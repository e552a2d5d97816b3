// Package node holds the bodies of the operator's routes, and Client, which calls them.
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//  2. AuditStream delivers a row once, and in order.
//  3. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package node
