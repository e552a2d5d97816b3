// Package index answers two questions: which manifest a name or a content id stands for, and who can serve a content id now. It is the store of
// record for what is published to this node, and a bounded, hedged client of other nodes for the rest.
//
// # Invariants
//
//  1. An acknowledged write is never followed by an older read: a write moves the fence of its key after its sync and before its answer, and
//     neither an entry of the cache nor a lookup under way from before the move answers anyone after it. It outdates its own key alone: a
//     fence is a cell by key, which is there as long as a filler or an entry may last. One that is removed before
//     outdates what refers to it: that costs a miss, never a wrong answer.
//  2. What a power cut could take back is not answered: who reads a row that is not synced waits until it is.
//  3. A version is written once. The seq of a key grows with each write, and survives its deletion. ForgetName gives both up: it removes the
//     row, a damaged one too.
//  4. The file holds signed provider records alone, whose signatures were checked before they were queued. What peers say stays in memory, and is told to
//     clients, not to other nodes. The name of another node is taken only under a key that is trusted for it. Its seq is compared with earlier
//     records by the same key; two trusted keys that differ are a conflict, which is counted and told in the answer, and no fault of a peer.
//  5. A lookup is one flight, one place in work_tx, and has one deadline from its admission. It makes at most alpha + beta calls, and three
//     retries beside; one for a name may ask each peer once. No call outlives the job it is for.
//  6. The first good answer wins; a loser is cancelled and joined. One that was still out when the second wave won counts against its peer. A
//     call that the deadline ends before it has had twice the hedge time says nothing of its peer.
//  7. Failures are never cached as "not found". An answer past its time is served only while peers fail, never past a signed expiry, never
//     after a write, a tombstone, or a peer's word that it is gone.
//  8. Every accepted job is answered exactly once, shutdown and panics included.
//  9. A lookup reads this node's file in the goroutine of its caller, and takes a place in work_tx only if peers are to be asked. While
//     another network waits, one network gets no more than a quarter of the places and of the workers. A lookup that could not be begun in
//     time is refused at admission.
//  10. An answer lists the providers of this node's file first, takes at most MaxHeard of one peer's answer, and ranks none by a date to come.
//  11. Every row has a checksum. A damaged row of a name is answered as such until it is forgotten; it is neither the truth nor absent, nor is
//     a key beside it absent. A damaged row of a provider or its expiry is stepped over and dropped. Neither ends a task or a boot.
//  12. The state of a breaker is changed by the breaker janitor alone, cache_meta by the cache janitor alone.
//
// # Tasks and queues
//
// Tasks: worker (a pool; it waits for peers, so it is larger than the machine), cache_janitor (1 s), breaker_janitor (250 ms), prefetcher,
// observer. Janitors use no network and hash nothing.
//
// Queues: work_tx 512 (reject new) from handlers to workers, which carries turns: the jobs are in the line, by network; bg_tx 64 (its one producer, the prefetcher, waits), taken while work_tx is
// empty; reindex_tx 16 (reject new) from handlers to the prefetcher; fills_tx 1024 (drop new) from handlers and workers to the cache janitor. Broadcast events_tx
// 1024 (drop oldest). Watches: cfg_watch, synced. Writes go from handlers to the store's lane work, which turns them away when it is full; expired
// records are removed through its lane bulk.
//
// A worker is held for as long as its lookup takes. With λ lookups a second, a share p of hits, S seconds of work and D seconds of peers each, choose
// M ≥ ceil(λ·(p·S + (1−p)·(S+D)) / 0.7).
//
// # Lock order
//
// flights: the shards of the flight. lookup.mu, line.mu, damage.mu and the locks of the fences are leaves, held over a few assignments.
package index
