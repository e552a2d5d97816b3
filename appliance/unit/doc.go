// Package unit gives durations and byte sizes the text that the config file and the command line use, "250ms", "30d", "8GiB".
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
