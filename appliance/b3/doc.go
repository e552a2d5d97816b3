// Package b3 is the digest of ronbox: BLAKE3 with 256 bits of output, and its one text form, "b3:" and 64 lower-case hex digits.
//
// # Invariants
//
//  1. A digest has one spelling: Parse takes what String prints and nothing else.
//  2. A Mode answers what no other mode does, the plain one included; it holds no state from one Sum to the next.
//  3. A Gang says of every input what Sum says, on every processor; a test holds its assembly to that for every length and lane.
//  4. Only this package imports the BLAKE3 library.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package b3
