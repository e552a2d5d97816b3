// Package node is the operator's part of the HTTP surface, over /admin/v1: what the node is and does, its tokens and their
// keys, its file, and its audit chain. New makes it from the appliance behind Engine; Client calls it.
//
// # Invariants
//
//  1. Its routes do not exist on TCP unless configured, profiles never do.
//  2. A secret is in the answer that makes it and in no other.
//  3. An answer that takes long reports its progress, and says at its end whether it failed.
//  4. A member name of a body is never renamed.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package node
