// Package access holds the verbs about access to a node and the record of it: tokens, the root keys that they are made
// with, and the audit chain.
//
// # Invariants
//
//  1. A token is printed only by the verb that makes or narrows it, and once.
//  2. An export of the audit chain is the same bytes, whether a node or a file gave it.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package access
