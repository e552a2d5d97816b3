// Package merkle implements BLAKE3 Merkle trees in the shape of RFC 6962. It provides roots and
// paths of a tree in memory, a growing log with stored subtrees, and proofs of inclusion and
// consistency. Each proof has a function that checks it.
//
// # Invariants
//
//  1. The hash of a leaf covers 0x00 and the bytes of the leaf. The hash of a node covers 0x01 and
//     its two children. The left side of a node is full and as large as possible. A tree without
//     leaves has the zero Digest.
//  2. A path with the wrong length proves nothing. The root does not contain the size of the tree:
//     the caller of a check must know it.
//  3. A node of the log is written once, at the next free position, and never changes.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package merkle
