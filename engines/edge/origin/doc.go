// Package origin asks the hosts of edge.allow for objects, and judges their answers.
//
// # Invariants
//
//  1. Only hosts of edge.allow are asked, over HTTPS, at public addresses or those of
//     edge.allow_private, redirects included.
//  2. An answer that may be stored is whole or the requested part, has a strong ETag and a known
//     end, and is not one that its host keeps private.
//  3. The breaker of a host counts failed connections, tries without an answer, and answers of 502
//     to 504 for at least 3 paths within a minute.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// The mutex of the faulty paths of a host is a leaf.
package origin
