// Package wallet executes requests to move money on the ledger, each of them once however often it
// is sent, and answers with the receipt. It holds no balances and no nonces: the ledger decides,
// and makes every refusal that depends on an account.
//
// A request is checked, joins or begins the job of its key, and waits in the queue. A worker sends
// queued jobs to the ledger in bursts and answers them. A burst is one call and one sync for many
// jobs. The worker does not check a job against the committed state first, because the ledger
// checks it in the same call against a newer state. A burst in which every op is refused writes
// nothing and waits for no sync.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-20.
//
// # Invariants
//
//  1. At most one job at a time processes a key of a principal. Another call with the same key
//     joins the job and gets its answer.
//  2. An accepted job gets exactly one answer: done, refused, not begun, or unknown, even if
//     workers, ledger or process fail.
//  3. A success is answered only after the ledger has answered. A call of the ledger is not
//     abandoned when its clients leave.
//  4. A job that is queued but not yet sent to the ledger can be cancelled, and then nothing was
//     done. The outcome of a sent job is "unknown" until the ledger answers. Repeating the request
//     with the same key returns the outcome.
//  5. At most one request with the same account and nonce succeeds. A nonce is optional: without
//     one the ledger assigns the account's last nonce plus 1. A given nonce must be the next one.
//     Requests reach the ledger in the order of the queue: if n and n+1 are queued in this order,
//     both succeed; if n is refused, n+1 is refused as a gap at once.
//  6. The memory of the ledger holds the only current copy of a balance. No receipt is copied. A
//     read returns the balance as of the newest record, even after ledger_bus has lagged.
//  7. The breaker closes without traffic, because the watchdog probes the ledger while it is not
//     ready. A failed call counts once for the breaker, however many ops it has. A call may last
//     for retry.rpc_timeout, or on a slow disk until it stalls, even if its callers leave earlier.
//  8. The age of a key is measured in the ledger's time, which follows the clock of the node. No
//     write is refused because a clock is wrong.
//  9. The daily ceiling of a token for an asset bounds the amount that the token moves on a UTC
//     day, whichever account pays. Issues, transfers, burns, holds and captures count with their
//     amounts; a release subtracts nothing. A narrowed token has the id of its parent, so they
//     share one count. An amount that is moved without a ceiling does not count. The ledger keeps
//     the count across restarts.
//  10. A payment that must not open its payee is refused, before it is queued, if the ledger has
//     not seen the payee. That is exact, because accounts never vanish. The condition is not a part
//     of the request: a repetition is answered as the first time, with it or without it.
//
// # Tasks and queues
//
//   - worker × workers: work_tx -> ledger, events_tx. One worker at a time gathers a burst. It
//     keeps this turn until the ledger has answered, so that jobs that arrive meanwhile form one
//     burst, in the order of the queue. With a heavy burst it passes the turn on as soon as the
//     burst is queued.
//   - cache_invalidator × 1: cold_tx -> ledger, ledger_bus -> events_tx. It makes the ledger keep
//     balances that are read in memory, and follows roots and expired holds.
//   - metrics_ticker × 1: metrics_tick, 1 s. It samples the depth of the queue for queue_ok, the
//     number of busy workers, and the services that authorize requests.
//   - audit_stream × 1: events_tx -> log.
//   - watchdog × 1: watchdog_tick, 25 ms, or 1 s while the ledger is ready and no commit was under
//     way for a second. It follows the ledger's health, and probes it every 100 ms while it is not
//     ready. A call stalls after ledger.stall_after, or on a slow disk after
//     four times the average commit, at most 2 s.
//   - work_tx: queue, 512, reject new, HTTP -> worker.
//   - cold_tx: queue, 64, reject new, HTTP -> cache_invalidator: balances that were read from the
//     file.
//   - events_tx: broadcast, 1024, drop oldest -> audit_stream. A lag of a reader, here or on the
//     ledger's ledger_bus, is logged at most once in 5 s.
//
// Missed ticks merge.
//
// # What the ledger does instead
//
//   - Balance cache: the balances in memory are the ledger's own. A commit changes them before it
//     is answered, so no balance is invalidated, and no window of staleness is needed
//     (wallet.staleness_window of older configurations has no effect). The ledger has its own
//     shards for them; wallet.shards is the number of shards of the table of running requests. The
//     ledger evicts rarely used rows by itself, so a purge of balances drops nothing;
//     amnesia_purge_total counts it.
//   - Policy service: the limits of the configuration and of the caller's token travel with each
//     op, and the ledger checks them in the call that commits it. A configuration with invalid
//     limits is refused as a whole. So there is no call that could fail.
//
// # Lock order
//
// flights (of flow, one shard at a time) before counters (the room of batches). No two locks of the
// same rank are held together. Readiness, admission of writes, the configuration, the progress of
// calls and the metrics are read without a lock. A task that changes a readiness key holds the
// board's lock.
//
// # Series that others move
//
// io_timeouts_total counts ledger_rpc here. Package httpapi counts read, write, and connect: a
// request of the wallet that this node could not forward in time, because it got no connection to
// the node that leads. upstream_fail_total{svc="auth"} counts the ticks at which no token key was
// active.
package wallet
