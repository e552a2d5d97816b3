// Package intake receives objects for the content store of the edge, from a host, a node, a caller
// or another member of a cluster.
//
// # Invariants
//
//  1. Room is reserved before a byte is read, and released when the intake is dropped.
//  2. An object that is shorter or longer than announced, or other than expected, is refused, and
//     leaves no file.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package intake
