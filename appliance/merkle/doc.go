// Package merkle implements BLAKE3 Merkle trees in the shape of RFC 6962: roots and paths of a tree
// whose leaves are in memory, and a growing log whose full subtrees are stored, with proofs of
// inclusion and consistency. Each proof has a function that checks it.
//
// # Invariants
//
//  1. A leaf is the hash of 0x00 and its bytes, a node that of 0x01 and its two children. The left
//     side of a node is full and as large as possible. A tree without leaves has the zero Digest.
//  2. A path with the wrong length proves nothing. The size of a tree is not part of its root: the
//     caller of a check must know it.
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
