// Package engines holds the words that the engines share, and nothing that any of them owns alone.
//
// # Invariants
//
//  1. It holds plain values: no clock, no I/O, no state.
//  2. It imports nothing of ronbox but the digest.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package engines
