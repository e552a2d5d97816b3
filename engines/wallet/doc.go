// Package wallet is the value plane: it takes requests to move money, sees to it that each is done once however often it is sent, and puts
// them to the ledger in bursts. It holds no balances: the ledger alone decides, and every refusal on the grounds of an account is the ledger's.
//
// A worker does not judge a job by the committed state before it sends it. What it would refuse the ledger refuses in the same call, by the same
// rules and a newer state, so a second judgement could only cost, or be wrong; and a refusal is cheap as it is: ops that are all refused write
// nothing and wait for no sync, and one that is refused beside others shares the sync that they wait for.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-20.
//
// # Invariants
//
//  1. One key of one principal is worked on by one job at a time; who sends it again meanwhile joins that job and gets its answer.
//  2. A job that was taken gets exactly one answer: done, refused, not begun, or unknown, whatever becomes of workers, ledger and process.
//  3. An answer of success comes after the ledger's, and no call of the ledger is given up because a client went away.
//  4. What was queued and not yet handed to the ledger can be taken back: nothing happened. What was handed over is "unknown" until the
//     ledger says otherwise; the same request with the same key finds out.
//  5. At most one reservation is made for each account and nonce among the jobs in hand. A reservation puts jobs in order and never refuses:
//     a job that cannot reserve goes to the ledger as it is. One that comes before those it follows waits nonce_wait for them, and then goes
//     as it is too.
//  6. The slots of the nonces are bounded by the jobs in hand: a slot goes with the last job that uses it, waits for it or lies in it.
//  7. No answer that decides about money comes from a cache. A cached balance is at most staleness_window old and says how old it is.
//  8. The closing of the breaker does not depend on traffic: while the ledger is not ready the watchdog probes it. What a call
//     says of the ledger does not depend on how long its callers wait: it lasts for as long as it takes to see a stall.
//  9. A key ages by the ledger's time. While that is not known, or the wall clock is more than 10 s behind it at the last look, which is a
//     second ago or so, no write is taken.
//  10. A token's ceiling of a day bounds what it moves of its asset on a day of UTC, whichever account pays: issues, transfers, burns, holds and
//     captures, each with its amount; a release gives nothing back. Tokens narrowed from one have its id, so what moves under a ceiling of any
//     of them counts for all of them; what moves under none does not count. The ledger counts, across restarts.
//
// # Tasks and queues
//
// Tasks: worker (puts bursts of jobs to the ledger; one at a time gathers, and keeps the turn until the ledger has answered a light burst,
// so that while one burst syncs, the next one forms; heavy ones overlap), cache_invalidator (ledger_bus to cached balances and to the
// audit), metrics_ticker (1 s: the depth of the queue, which queue_ok judges, the workers at work, the clock, the pace of the disk; the gauge
// queue_depth is newer, read when it is asked for), audit_stream (events_tx to the log), watchdog (25 ms: the ledger's health, and the jobs whose
// time to wait for a nonce is over). Queues: work_tx (reject new), fed by HTTP. Broadcasts: events_tx (drop oldest); ledger_bus is the ledger's. The log says
// at most once in 5 s that a reader of either lags, and by how much since. Ticks: metrics_tick, watchdog_tick (missed ticks merge). Jobs that
// wait for the nonce before theirs, in sight or not, wait in their account's slot, at most nonce_pipeline of them, and those not in sight for at
// most half of limits.max_inflight in all; when they need not any more, in a list that the workers read before the queue. The caches hide set
// buffers that drop when full.
//
// # Lock order
//
// flights (flow's, one shard at a time) before counters; neither is taken under another of its own rank. Counters are: each shard of the nonces,
// which covers its map and what its slots say it does; the list of jobs that need not wait any more; the room of batches. A nonce has one owner
// at a time, under its shard's lock, so that a reservation needs no compare-and-swap. Beside these, of each cache the lock around calls of
// ristretto, a leaf. /readyz, whether a write is taken, the configuration in force, the calls under way, the metrics and the cached balances'
// marks are read without a lock; who flips a key holds the board's for as long.
//
// # Series that stay at zero
//
// io_timeouts_total{op="connect"}: the ledger is in this process, so nothing is connected to; read and write are the front's.
// upstream_fail_total{svc="policy"}, and the key policy_ready: what a caller may do is in his token and in the limits, both in memory, so a node
// has no PolicyReady that could fail. upstream_fail_total{svc="auth"} counts the ticks at which no key was active.
package wallet
