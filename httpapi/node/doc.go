// Package node is the operator's part of the HTTP surface, /admin/v1: the node's state, its tokens
// and their keys, its file, and its audit chain. New builds it on an Engine. The bodies are in
// httpapi/wire/node.
//
// # Invariants
//
//  1. Its routes do not exist on TCP unless configured. Profiles never do.
//  2. Only the answer that creates a secret contains it.
//  3. A long answer reports its progress. Its last line contains the result.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package node
