// Package packtest makes map packs for tests: sound ones, and hostile ones as a stranger might send
// them.
//
// # Invariants
//
//  1. Every hostile pack is made from code in milliseconds, and takes at most a few megabytes.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package packtest
