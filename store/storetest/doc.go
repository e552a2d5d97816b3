// Package storetest tries an engine's commands in tests: one transaction in memory, never committed, so a command costs microseconds.
//
// # Invariants
//
//  1. Do applies and merges as the committer does: a refused or panicking command leaves no trace.
//  2. Nothing touches a disk.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package storetest
