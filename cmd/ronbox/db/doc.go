// Package db provides the verbs for the database file: statistics, checks, snapshots, maintenance.
//
// # Invariants
//
//  1. The node is asked about a file that it has open. The file of a stopped node is read directly.
//  2. A snapshot is never rewritten, because its manifest would no longer match.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package db
