// Package db holds the verbs about the database file: figures, checks, snapshots, maintenance.
//
// # Invariants
//
//  1. A file that a node holds is asked of the node; the file of a stopped node is read here.
//  2. A snapshot is never rewritten: its manifest would no longer fit it.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package db
