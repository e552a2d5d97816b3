// Package lookup asks the peers of the index for one key, and holds the cache of answers with the
// fences of their keys.
//
// # Invariants
//
//  1. A lookup makes at most alpha + beta calls and three retries; a lookup of a name may ask each
//     peer once. The owner of a name is asked first, and alone until the hedge time or its failure.
//     No call outlives LookUp, and done is called once.
//  2. A lookup of a name ends with the first good answer. A lookup of a content id waits for the
//     alpha peers, at most until the hedge time, and merges the good answers independently of their
//     order.
//  3. "Not found" needs more peers that answered so than peers that did not answer, or the word of
//     the owner if it alone is trusted. Failures are not "not found".
//  4. An entry or a lookup from before a write of its key is no hit afterwards. Early removal of a
//     fence can cause a miss, but never a wrong answer.
//
// # Tasks and queues
//
// None. The workers of the index look up, and its cache janitor calls Sweep.
//
// # Lock order
//
// lookup.mu and the locks of the fences are leaves.
package lookup
