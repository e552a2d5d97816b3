// Package upkeep does the recurring work of a node beside its services.
//
// # Invariants
//
//  1. The check of a folder for snapshots writes nothing. It names the user and the unit that may
//     not write there.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package upkeep
