// Package limit implements token buckets: a single one, and a table of bounded size with one per
// key. The state of a bucket is one number, the time at which it will be full, so no task has to
// refill it.
//
// # Invariants
//
//  1. In any time t at one rate, a bucket grants at most burst + rate·t tokens. A refusal takes no
//     token.
//  2. Nothing waits: a refusal returns the time until the next token.
//  3. A Keyed table never holds more keys than its room. It evicts the least recently used key.
//  4. The caller supplies the time. If it jumps back, a bucket is empty at worst, and refuses for
//     at most a second longer than an empty one.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// Keyed.mu only, held for one lookup.
package limit
