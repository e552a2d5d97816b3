// Package index looks up the manifest of a name or a content id, and the providers of a content id.
// It is the store of record for names and providers that are published to this node, and a bounded,
// hedged client of other nodes for all others.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-22.
//
// Terms: a lookup is a search among peers, and a leg is one of its concurrent strands. A wave is a
// group of peers that are asked at once: alpha peers first, and beta others at the hedge time. A
// fence is the write counter of a key. A stale answer is one past its TTL. The owner of a name is
// the node whose item in the registry lists the longest suffix of it; without a fleet there is
// none.
//
// # Invariants
//
//  1. A read after an acknowledged write never returns an older answer. A write moves the fence of
//     its key after its sync and before its answer. Cache entries and lookups from before the move
//     answer no later caller. A write outdates only its own key. A fence exists at least as long as
//     the fillers and the entry that refer to it. Early removal of a fence can cause a miss but
//     never a wrong answer.
//  2. Reads never return unsynced rows. A read of a row or of a page of names blocks until all its
//     rows are synced. A page of names visits at most maxWalk rows.
//  3. A version is written once. The seq of a key grows with each write and survives its deletion.
//     In a file that was restored from a snapshot it is at least the time in Unix ms. ForgetName
//     gives up both: it removes the row, even if it is damaged.
//  4. The file holds only signed provider records, which were verified before they were queued.
//     Answers of peers stay in memory, and are served to clients but not to other nodes. Records
//     of names by their owners are the exception: they are kept in index/held, at most maxHeld,
//     and served as the owner signed them. The name record of another node is accepted only under
//     a key that is trusted for the name: the keys of index.trust and that of its owner. Its seq
//     is compared with earlier records by the same key. Two trusted keys that disagree are a
//     conflict, which is counted and reported in the answer, and does not count against a peer.
//  5. Concurrent callers of a key share one lookup. It takes one place in work_tx, has one deadline
//     from its admission, and makes at most alpha + beta calls and three retries; a lookup of a
//     name may ask each peer once. The owner of a name is asked first, and alone until the hedge
//     time or its failure. No call outlives the job that made it.
//  6. A lookup of a name ends with the first good answer. A lookup of a content id waits for the
//     alpha peers until all have answered, at most until the hedge time. If it then has a good
//     answer, it ends. Otherwise it asks beta other peers and ends with the next good answer. The
//     good answers for a content id are merged, independently of their order. Losing calls are
//     cancelled and joined. A call that is still running when the second wave wins counts against
//     its peer. A call that kept the lookup waiting until the hedge time, although others had
//     answered, does not count; but lookups stop waiting for that peer for breaker.cooldown_s or
//     until it answers in time. A call that the deadline ends before twice the hedge time does not
//     count either.
//  7. A lookup ends with "not found" only if the peers that answered "not found" outnumber the
//     peers that did not answer. If the owner alone is trusted for a name, its "not found" is
//     final, and that of others counts for nothing. If some did not answer, the error is a
//     SilentError and is cached for half of neg_ttl_ms. Failures are never cached as "not found". A
//     stale answer is served only while a peer that gave it does not answer, never past a signed
//     expiry, and never after a write or a tombstone.
//  8. Every accepted job is answered exactly once, including at shutdown and after a panic.
//  9. A lookup reads this node's file in the goroutine of its caller, and takes a place in work_tx
//     only before it asks peers. While another network waits, one network holds at most a quarter
//     of the places and of the workers. The lookups of networks that are Quiet have a quarter of
//     the places and the first free workers, up to a quarter of them, before all others. A lookup
//     that cannot begin in time is refused with flow.ErrBusy, at admission or when a worker takes
//     it too late. It never ends in ErrTimeout.
//  10. An answer lists the providers of this node's file first, takes at most MaxHeard of one
//     peer's answer, and ranks no provider by a date in the future.
//  11. Every row has a checksum. A damaged row of a name is reported as damaged until it is
//     forgotten. It counts neither as valid nor as absent, and a key next to it does not count as
//     absent. A page of names lists it by its key. A damaged row of a provider or of an expiry is
//     skipped and removed. Damaged rows end neither a task nor a boot.
//  12. Only the breaker janitor changes the state of a breaker. Only the cache janitor writes
//     cache_meta. Only the renewer writes index/held.
//  13. Peers and owners are one snapshot, which SetFleet replaces; a lookup uses one snapshot. A
//     name that another node owns cannot be put, and a row of it counts for nothing. When a name
//     gets another owner, no call that begins later gets an answer of the earlier one.
//
// # Tasks and queues
//
// Tasks:
//
//   - worker (index.resolver.workers): runs lookups. Workers wait for peers, so there are more of
//     them than processors.
//   - cache_janitor (1, every second): expires entries and records. It uses no network.
//   - breaker_janitor (1, every 250 ms): steps the breakers. It uses no network.
//   - prefetcher (1): queues warm-up, reindexing and probes.
//   - observer (1): counts events.
//   - renewer (1, every hour; only with a fleet): keeps the records of owners and asks the owners
//     again.
//
// Queues and broadcasts:
//
//   - work_tx, 512, reject new: HTTP -> worker. Its items are turns; the jobs are in the line, by
//     network.
//   - bg_tx, 64, wait: prefetcher, renewer -> worker, taken while work_tx is empty.
//   - records_tx, 4096, drop new (only with a fleet): worker -> renewer.
//   - reindex_tx, 16, reject new: HTTP -> prefetcher.
//   - fills_tx, 1024, drop new: HTTP, worker -> cache_janitor.
//   - events_tx, 1024, drop oldest: HTTP, worker, cache_janitor -> observer.
//   - cfg_watch, synced: watches of the configuration and of the last synced command.
//
// Handlers write through the store's lane work, which refuses writes when it is full. Expired
// records are removed, and records of owners kept, through the lane bulk.
//
// A lookup holds its worker until it ends. With λ lookups a second, a share p of hits, S seconds of
// work and D seconds of peers each, choose M ≥ ceil(λ·(p·S + (1−p)·(S+D)) / 0.7) workers.
//
// # Lock order
//
// flights (the shards of the flight) come first. lookup.mu, Line.mu, damage.mu (of records) and
// the locks of the fences are leaves.
package index
