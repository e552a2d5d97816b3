// Package limit bounds how often something may happen: token buckets, one alone or one per key in a table of bounded size.
//
// A bucket is one number, the time at which it would be full again, so that it needs no task that refills it.
//
// # Invariants
//
//  1. In any span t at one rate, a bucket gives at most burst + rate·t tokens. A refusal takes none.
//  2. Nothing waits: a refusal returns the time until the next token.
//  3. A Keyed table never holds more than the keys it was given room for; the key idle longest is evicted.
//  4. The clock is the caller's. One that jumps back empties a bucket at worst, and never closes it for more than a second longer than an
//     empty one.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// Keyed.mu alone, held for one look-up.
package limit
