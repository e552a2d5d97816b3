// Package clustertest tests three nodes of a cluster as processes: payments, names of the index,
// versions of the registry and runs of the rewarder continue while nodes are killed, paused, cut
// off, wiped and replaced, while disks fail, and while all lose their power. Each link between two
// nodes is a TCP proxy of the test.
//
// # Invariants
//
//  1. The histories of balances and names are linearizable. A write with an unknown outcome may
//     take effect until the end of its history.
//  2. An acknowledged write exists once. A repetition under the same key gets the same receipt, on
//     any node.
//  3. A reader of payments who resumes after the last id, at any node, has each payment once.
//  4. When the load has ended, the state hashes of all nodes are equal at the same position.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package clustertest
