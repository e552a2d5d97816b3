// Package member is the part of a node in its cluster: the raft node, the peer port, the hellos to
// the leader, the objects that members exchange, and the operations of the cluster's routes.
//
// # Invariants
//
//  1. Only requests that a member has not forwarded for a client reach the handlers of members. A
//     client cannot speak as the member that forwards for it.
//  2. Only members are answered. A node that was removed keeps its certificate, and is refused.
//  3. A node that would judge tokens wrongly, or whose clock is wrong, stands for no election. A
//     full or slow one stands only if no other leads.
//  4. A certificate is renewed by the clock on which the members agree. A member alone with its
//     clock waits for the word of others first.
//  5. A member writes an object only if its bytes have the hash, and only while another one leads.
//  6. A node that was deposed twice within a minute stands for no election for a minute.
//
// # Tasks and queues
//
//   - hello: 1 task. It tells the leader the address, the URL and the clock of the node every 10 s,
//     asks every second to be admitted if the node joins, and renews the certificate if that is
//     due. The tasks of packages cluster and peer run as long.
//
// # Lock order
//
// None.
package member
