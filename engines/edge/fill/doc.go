// Package fill fetches objects from the hosts of edge.allow, or from other sources, and stores
// them.
//
// # Invariants
//
//  1. A full queue refuses a fill at once. An accepted fill is dropped only by a shutdown, or if
//     all its callers leave before a worker takes it and no POST began it. If several hosts may be
//     asked, one host occupies at most as many places of work_tx, and as many workers, as it leaves
//     free.
//  2. Each try has a deadline. A fill that a POST began ends after edge.fill.idle without a byte,
//     and after an hour at most.
//  3. At most one fill runs for each URL. After a worker has taken it, it continues even if all its
//     callers leave, and it is answered exactly once, also after a panic.
//  4. No fill begins after the node has begun to drain.
//  5. An object is installed when it is complete, and has the digest that was expected. A refusal
//     of a host is remembered for a while; neither the host nor a source is blamed for a queue or a
//     deadline of the node.
//  6. A request for a stale object has its host asked at most once per edge.cache.interval and URL,
//     and not within 10 s after the host was silent. Whatever the host does, the stored object
//     stays, except that a 200 replaces it and a 404 or 410 removes a URL that is not pinned.
//  7. No event and no text of an error contains the query of a URL.
//
// # Tasks and queues
//
//   - worker, 8: fetches an object, hashes it and sends it to cas_writer
//   - work_tx, 512, reject new: fills, one lane per host, HTTP -> worker
//   - ready_tx, 512: the fills of work_tx that may begin, HTTP -> worker; it is never full
//
// # Lock order
//
// The flights of the URLs before counters, which are the tokens of the rate limit and the lanes of
// work_tx. No two counters are held together.
package fill
