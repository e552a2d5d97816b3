// Package archive provides the verbs for the archive of a node: its keys, its state, and what can
// be done with the target alone.
//
// # Invariants
//
//  1. A verb that reads or writes a target needs no node. Only restore, verify and keygen read or
//     write an identity, and none of them prints one.
//  2. restore and keygen write over nothing.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package archive
