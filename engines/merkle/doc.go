// Package merkle holds BLAKE3 Merkle trees in the shape of RFC 6962: roots and paths of a tree whose leaves are at hand, and the growing log whose
// full subtrees are stored, with proofs of inclusion and consistency. Each proof has its check beside it.
//
// # Invariants
//
//  1. A leaf hashes 0x00 and its bytes, a node 0x01 and its two children; the left side of a node is full and as large as it can be. A tree of no
//     leaves has the zero Digest.
//  2. A path of another length than its place in the tree demands proves nothing. The size of a tree is not in its root: whoever checks a path knows
//     the size from elsewhere.
//  3. A node of the log is written once, at the next free position, and never changes.
//
// # Tasks and queues
//
// none: every function returns when its work is done.
//
// # Lock order
//
// none: nothing is shared.
package merkle
