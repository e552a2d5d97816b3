// Package db provides the verbs for the database file: statistics, checks, snapshots, maintenance.
//
// # Invariants
//
//  1. If the node has the file open, a verb asks the node about it. A verb reads the file of a
//     stopped node directly.
//  2. A snapshot is never rewritten, because its manifest would no longer match.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package db
