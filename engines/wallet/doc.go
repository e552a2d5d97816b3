// Package wallet takes requests to move money, has the ledger carry out each of them once however
// often it is sent, and answers with the receipt. It holds no balances and no nonces: the ledger
// decides, and every refusal that depends on an account is the ledger's.
//
// A request is checked, joins or begins the job of its key, and waits in the queue. A worker sends
// queued jobs to the ledger in bursts, one call and one sync for many jobs, and answers them. The
// worker does not judge a job by the committed state before: the ledger judges it in the same call,
// by a newer state. A burst in which every op is refused writes nothing and waits for no sync.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-20.
//
// # Invariants
//
//  1. At most one job at a time processes a key of a principal. Another call with the same key
//     joins the job and gets its answer.
//  2. An accepted job gets exactly one answer: done, refused, not begun, or unknown, even if
//     workers, ledger or process fail.
//  3. An answer of success comes after the ledger's. No call of the ledger is abandoned because a
//     client left.
//  4. A job that is queued and not yet sent to the ledger can be taken back: nothing happened. A
//     job that was sent is "unknown" until the ledger answers; the same request with the same key
//     finds out.
//  5. At most one request with the same account and nonce succeeds. A nonce is optional: without
//     one the ledger assigns the account's last nonce plus 1. A given nonce is strict: requests
//     reach the ledger in the order of the queue, so n and n+1 that are queued in this order both
//     pass, a refused n makes n+1 a gap, and a gap is refused at once.
//  6. There is one copy of a balance, in the memory of the ledger, and no copy of a receipt. A
//     balance is as new as the newest record when it is read: of the staleness_window that readers
//     tolerate it uses 0 ms, also after ledger_bus has lagged.
//  7. The breaker closes without traffic: while the ledger is not ready the watchdog probes it. A
//     failed call counts once for the breaker, however many ops it has, and lasts up to
//     retry.rpc_timeout, however soon its callers leave.
//  8. A key ages by the ledger's time. While the ledger's time is not known, or more than 10 s
//     ahead of the wall clock, writes are refused. The wall clock is compared once a second.
//  9. A token's daily ceiling bounds the amount of its asset that the token moves on a UTC day,
//     whichever account pays: issues, transfers, burns, holds and captures, each with its amount; a
//     release gives nothing back. Tokens narrowed from one have its id, so amounts under the
//     ceiling of any of them count for all of them; amounts under no ceiling do not count. The
//     ledger counts, across restarts.
//
// # Tasks and queues
//
//   - worker × workers: work_tx -> ledger, events_tx. One worker at a time gathers a burst and
//     holds the turn until the ledger has answered, so that the jobs of that time make one burst,
//     in the order of the queue. A heavy burst passes the turn as soon as it is queued.
//   - cache_invalidator × 1: cold_tx -> ledger, ledger_bus -> events_tx. It has the ledger keep
//     balances in memory that are read, and follows roots, expired holds and the ledger's time.
//   - metrics_ticker × 1: metrics_tick, 1 s. It samples the depth of the queue, which queue_ok
//     judges, the workers at work, the clock, and the services that judge requests.
//   - audit_stream × 1: events_tx -> log.
//   - watchdog × 1: watchdog_tick, 25 ms. It follows the ledger's health, and probes it every
//     100 ms while it is not ready. A call stalls after ledger.stall_after, or after four times the
//     average call on a slow disk.
//   - work_tx: queue, 512, reject new, HTTP -> worker.
//   - cold_tx: queue, 64, reject new, HTTP -> cache_invalidator: balances that were read from the
//     file.
//   - events_tx: broadcast, 1024, drop oldest -> audit_stream. Readers that lag are logged at most
//     once in 5 s, here and on ledger_bus, which is the ledger's.
//
// Missed ticks merge.
//
// # Settings that moved
//
// wallet.shards divides the locks over the requests under way; the balances in memory have shards
// of the ledger's own. Rows that are used least leave the ledger's memory by themselves, so a purge
// of balances drops nothing; amnesia_purge_total counts it.
//
// # Lock order
//
// flights (flow's, one shard at a time) before counters (the room of batches); neither is taken
// under another of its own rank. /readyz, whether a write is taken, the configuration in force, the
// progress of the calls and the metrics are read without a lock. A task that flips a readiness key
// holds the board's lock meanwhile.
//
// # Series that stay at zero
//
//   - io_timeouts_total{op="connect"}: the ledger is in this process. read and write are the
//     front's.
//   - upstream_fail_total{svc="policy"}, and the key policy_ready: the rights of a caller are in
//     its token and in the limits, both in memory. upstream_fail_total{svc="auth"} counts the ticks
//     at which no key was active.
//   - balance_cache_total{outcome="stale"}: there is one copy of a balance.
package wallet
