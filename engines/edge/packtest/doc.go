// Package packtest makes map packs for tests: sound ones, and hostile ones that a stranger might
// send.
//
// # Invariants
//
//  1. Every hostile pack is generated in milliseconds and has at most a few megabytes.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package packtest
