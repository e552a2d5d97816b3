// Package unit reads and writes durations and byte sizes in the form of the configuration file and
// the command line ("250ms", "30d", "8GiB"), checks bounds, and finds the closest match of a
// misspelt name. It also shortens texts for messages, and quotes the words of a command line.
//
// # Invariants
//
//  1. String returns a short, exact form. Parsing it returns the same value.
//  2. A value that does not fit is refused, never wrapped or rounded.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package unit
