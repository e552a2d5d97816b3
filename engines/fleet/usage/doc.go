// Package usage holds what a node of a fleet attests about an epoch: the bytes that it received
// from each other node. The node that received them attests, because the node that served them has
// a reason to lie. The package writes and reads the signed statements, and computes what the
// statements of all nodes count for.
//
// It is a leaf: it does no I/O and knows no engine.
//
// # Invariants
//
//  1. A statement has one spelling, and the signature covers every member. A statement that was
//     changed, or signed by another key, does not open.
//  2. A statement names its genesis, node, epoch and length, so it counts in no other place.
//  3. What a node attests about itself does not count, and no node counts for more bytes than the
//     statements attest about it.
//  4. No pair of nodes counts for more than its share of the epoch. See [Count].
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package usage
