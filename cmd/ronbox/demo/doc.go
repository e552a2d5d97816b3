// Package demo implements the command that demonstrates a node in a minute.
//
// # Invariants
//
//  1. The demonstration needs no network, and asks only its own node.
//  2. It writes only into its folder: a new temporary one, or the empty one that --data-dir names.
//     Unless --keep is given it removes what it has written, however it ends.
//  3. A step is reported only after it was checked.
//  4. The node never outlives the command.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package demo
