// Package storetest runs commands of an engine in tests, in one in-memory transaction that is never
// committed. A command takes microseconds. Log stands for the log of a cluster.
//
// # Invariants
//
//  1. Do applies and merges as the committer does: a refused or panicking command leaves no trace.
//  2. Nothing touches a disk.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package storetest
