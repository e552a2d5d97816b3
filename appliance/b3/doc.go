// Package b3 provides the digests of ronbox: BLAKE3 with 256 bits of output, and their only text
// form, "b3:" and 64 lower-case hex digits.
//
// # Invariants
//
//  1. A digest has one text form: Parse accepts only the output of String.
//  2. The digests of a Mode differ from those of every other mode, including Sum. A Mode keeps no
//     state between two calls of Sum.
//  3. A Gang returns the same digests as Sum on every processor. A test compares its assembly with
//     Sum for every length and lane.
//  4. Only this package imports the BLAKE3 library.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package b3
