// Package flow holds what concurrency in ronbox is made of: channels with a bound and a policy, one-shot answers, ranked locks, supervised
// tasks, and the catalogue in which they are declared. It imports nothing of ronbox and everything else builds on it.
//
// # Invariants
//
//  1. Whatever queues, fans out, repeats or runs is declared: every Queue, Broadcast, Watch, Ticker and Task is made through a Catalog, which
//     refuses a second one of the same service and name, so the printed topology is the real one. Beside them stand ranked locks, which tell
//     the catalogue their rank; signals, channels of struct{} with room for at most one token; and leaf mutexes, held over nothing that waits,
//     which their package's Lock order tells of. ronlint (rawchan, lockwait) finds any other channel, ticker or delayed call; a comment
//     excuses those that end with one call or hold no work.
//  2. Queue: the items accepted by TrySend and Send are exactly those that come out of C, Recv or Discard, in order per producer. C is
//     closed only when the queue is closed, empty, and no sender is inside; no send ever meets a closed channel.
//  3. Broadcast: Publish never waits; for each subscription published = delivered + lagged + pending.
//  4. Watch: a Load is never torn, and the channel it returns closes at the next Store, whenever that happens.
//  5. Reply: exactly one of success, failure, cancelled and unknown reaches the waiter; a claimed item is never cancelled.
//  6. Every goroutine has an owner that joins it: the Supervisor its tasks, Fan its legs, a Flight its runs. Only what ignores the end of
//     its context past the grace of a Drain or a Close is left behind. A panic in a task ends that life of the task only, one in a run
//     fails those who wait for it; either is counted and its stack logged once.
//  7. A closed queue means drain, a done context means stop now. A queue closes when the last task named in its Producers has returned.
//  8. Each goroutine of a task carries the labels service and task. What a task or a channel shows of itself is what it was at one moment.
//  9. Breaker: Step alone changes the state. Open lets nothing through before its stay is over; half-open lets through no more calls than
//     there are probes, and a result counts in the era that let its call through or nowhere.
//  10. Flight: at most one call a key is under way, everyone who joined it gets its one answer or leaves, and a call that all have left
//     before it was claimed is never made. A key is free again before anyone has the answer.
//  11. Metrics are resolved when a thing is constructed; no hot path looks one up.
//  12. Late: it ends when and as a context with its deadline does, and has a timer only once somebody waits for it.
//
// # Tasks and queues
//
// The package starts no task of its own. The Supervisor runs two goroutines for each instance of a task: one that lives the task's
// lives, one that watches it, waits out the restart delay and tells of escalation. Flight.Do runs one goroutine for
// each call. Queues hold what their Spec says and never grow.
//
// # Lock order
//
// Engines' locks follow the ranks of this package, outer first: state_meta, run_registry, routing_table, flights, cache_meta,
// balance_cache, breaker_table, counters. A goroutine holds locks of one service only and none while it waits on anything of this package;
// with the build tag flowdebug both are checked and a breach panics. The shards of a Flight are locks of its service with the rank flights,
// held inside its methods only. The package's own locks (Catalog, Broadcast, Breaker, Ticker, Supervisor, task state, Fan) are innermost,
// guard a few assignments, and are never held together nor over a call out of the package.
//
// # Schedules
//
// Between two accesses to what goroutines share stands a call of point, behind each channel operation that may wait one of woken, before a
// select with several cases that may be ready one of either2 or either3, and begin at the start of each goroutine; they are empty in a
// normal build. With the build tag flowsched a test runs the threads of a scenario one at a time and decides at each of them who goes on,
// so that it can run every order in which at most three times the turn is taken from a thread that could have gone on, or where these are
// too many a part of them, the same each time. What follows woken and begin up to the next point must touch nothing that is shared. A
// failing order is printed as a string, which runs it again:
//
//	go test -tags flowsched -run Schedule ./appliance/flow
//	go test -tags flowsched -run Schedule -timeout 1h ./appliance/flow -args -deeper 100
//	go test -tags flowsched -run 'TestScheduleQueue/discard' ./appliance/flow -args -schedule 1002.
package flow
