// Package unit reads and writes durations and byte sizes as the config file and the command line spell them, "250ms", "30d", "8GiB",
// checks the bounds of their values, and finds the name that a misspelt one is closest to.
//
// # Invariants
//
//  1. String prints one short exact form, and parsing it gives the value back.
//  2. A value that does not fit is refused, never wrapped or rounded.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package unit
