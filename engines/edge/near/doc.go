// Package near fetches objects from the other nodes of a fleet. A search asks one node after
// another for the object, until one has sent it.
//
// # Invariants
//
//  1. The bytes of a node are believed by their BLAKE3 alone. An object longer than its manifest
//     says is not stored.
//  2. At most one search runs for each digest and limit. It asks at most 5 nodes at once, and reads
//     the body of one at a time. Each node is asked for its own store alone, so a request causes no
//     more than one search.
//  3. The breaker of a node counts failed connections, answers of 502 to 504, tries without an
//     answer, bodies that broke off or came too slowly, and bytes with a wrong hash, if the node
//     sent all of them. It is kept as long as the endpoint and the keys of the node stay. No node
//     is blamed for the size in a manifest.
//  4. A failed search is remembered like an answer of a host, until another version of the
//     registry. It has found nothing only if every node that may be asked has answered that it
//     does not have the object; otherwise it is a failure, which is remembered for less time.
//  5. A search has a deadline, and no search begins after the phase Draining has begun.
//
// # Tasks and queues
//
//   - nodes, watch: the other nodes, Set -> HTTP and tasks
//
// The flight fetch joins searches for one object. The slots probes let 64 nodes be asked at one
// time.
//
// # Lock order
//
// Only the flights have locks.
package near
