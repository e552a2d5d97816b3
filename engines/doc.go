// Package engines holds the words that the engines share, and nothing that any of them owns alone.
//
// # Invariants
//
//  1. It holds plain values: no clock, no I/O, no state.
//  2. It imports nothing of ronbox.
//  3. An Amount has one spelling, and no sum of two wraps.
//  4. Narrowing a Grant never lets it allow what it did not. Once it is handed out it is not changed.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package engines
