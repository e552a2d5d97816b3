// Package highwater keeps the file with the last checkpoint that a node has signed. It is outside
// the database, so that an older database can be detected.
//
// # Invariants
//
//  1. Once Write returns nil, the mark survives a power cut.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package highwater
