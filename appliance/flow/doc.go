// Package flow provides the concurrency primitives of ronbox: bounded channels, one-shot replies,
// ranked locks, supervised tasks, and the catalogue in which they are declared. It imports no
// other package of ronbox.
//
// # Invariants
//
//  1. Every Queue, Broadcast, Watch, Ticker, Slots and Task is created through a [Catalog], which
//     refuses a second one with the same service and name. So the printed topology is complete.
//     Ranked locks are declared too. Signals and leaf mutexes are not declared. A signal is a
//     channel of struct{} that holds at most one token. A leaf mutex is never held during a wait,
//     and is listed in the Lock order of its package. ronlint (rawchan, lockwait) reports any other
//     channel, ticker or delayed call, unless a comment excuses it because it ends with one call or
//     holds no work.
//  2. Queue: the items accepted by TrySend and Send are exactly those returned by C, Recv or
//     Discard, in order per producer. C is closed only when the queue is closed and empty and has
//     no sender. A send never meets a closed channel.
//  3. Broadcast: Publish never waits. For each subscription, published = delivered + lagged +
//     pending.
//  4. Watch: a Load is never torn. The next Store closes the channel that the Load returned, even
//     if it comes before the caller waits.
//  5. Reply: the waiter gets exactly one of success, failure, cancelled and unknown. A claimed
//     item is never cancelled.
//  6. Every goroutine has an owner that waits for it: the Supervisor for its tasks, Fan for its
//     legs, a Flight for its runs. Only a goroutine that ignores the end of its context for longer
//     than the grace of a Drain or Close is abandoned. A panic in a task ends that run of the task
//     only; a panic in a run of a Flight fails its waiters. Both are counted, and the stack is
//     logged once.
//  7. To drain a task, close its queue; to stop it at once, end its context. A queue closes when
//     the last task in its Producers has returned.
//  8. Each goroutine of a task has the profiler labels service and task. The state shown for a
//     task or a channel is its state at one moment.
//  9. Breaker: only Step changes the state. Each change begins a new era. An open breaker permits
//     no call until its stay has passed. A half-open one permits at most the configured number of
//     probes. A result that arrives after the era of its permit has ended does not count.
//  10. Flight: at most one call per key is in progress. Every caller that joined it gets its one
//     result or leaves. If all callers leave before the call is claimed, it is never made. The key
//     is free again before any caller has the result.
//  11. Constructors resolve the metrics; hot paths do no lookups.
//  12. A Late ends at the same time and with the same error as a context with its deadline. It
//     creates its timer at the first call of Done.
//  13. Slots: at most the declared number of callers have a slot. A slot that is released is taken
//     by a waiting caller, unless its context ends first.
//
// # Tasks and queues
//
// The package starts no task of its own.
//
//   - Supervisor (2 goroutines per instance of a task): one calls Run, the other watches it, waits
//     for the restart backoff and reports escalation.
//   - Flight.Do (1 goroutine per call).
//   - Queues and Slots have the capacity of their Spec and never grow.
//
// # Lock order
//
// Locks of engines follow the ranks of this package, outermost first: run_registry, flights,
// cache_meta, counters. A goroutine holds locks of one service only, and none while it waits for
// anything of this package. With the build tag flowdebug both rules are checked, and a violation
// panics. Every other lock is a sync.Mutex that is a leaf: its comment says so, and ronlint checks
// that no other lock is taken while it is held. The classes state_meta, routing_table,
// balance_cache and breaker_table of the concurrency documents need no rank: one task owns the
// state and publishes it by an atomic pointer, or its locks are leaves. The shards of a Flight are
// locks of its service with the rank flights and are held inside its methods only. The package's
// own locks (Catalog, Broadcast, Breaker, Ticker, Supervisor, task state, Fan) are innermost. Each
// guards a few assignments. No two of them are held together, and none during a call out of the
// package.
//
// # Schedules
//
// The code marks places for the schedule explorer. They compile to nothing in a normal build:
//
//   - point stands between two accesses to shared state,
//   - woken follows a channel operation that may wait,
//   - either2 or either3 precedes a select with several cases that may be ready,
//   - begin is the first call of each goroutine.
//
// With the build tag flowsched, a test runs the threads of a scenario one at a time and decides at
// each place which one continues. It runs every order with at most three preemptions, or, if these
// are too many, a fixed sample of them. The code after woken or begin must not touch shared state
// before the next point. A failing order is printed as a string, which reproduces it:
//
//	go test -tags flowsched -run Schedule ./appliance/flow
//	go test -tags flowsched -run Schedule -timeout 1h ./appliance/flow -args -deeper 100
//	go test -tags flowsched -run 'TestScheduleQueue/discard' ./appliance/flow -args -schedule 1002.
package flow
