// Package access provides the verbs for tokens, the root keys of tokens, and the audit chain.
//
// # Invariants
//
//  1. A token is printed once, by the verb that creates or restricts it.
//  2. An export of the audit chain has the same bytes from a node and from a file.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package access
