// Package rewarder turns sealed usage and a signed policy into a payout set that anyone can recompute, proves it, and has the ledger pay it
// exactly once.
//
// # Invariants
//
//  1. An epoch of a tenant has one slot, and the slot one run. Another run gets it only if the one before failed, which paid nothing.
//  2. A run that was answered 202 is in the file. What a queue carries is a handle: losing it loses no money, the scheduler finds what is left to
//     do in rw/todo, at a start and each second.
//  3. Nothing of a run is visible before it is sealed. It is sealed once what was staged was read back by other code, and payout and residual are
//     together the pool; else it is quarantined for good and has no intents.
//  4. An intent has one key, made of the run, its commitment and the chunk, and no second one is ever made. The ledger does what a key names once,
//     and lets one run key settle an epoch: paying again is looking up. A run has one chunk in flight.
//  5. A run that the ledger refuses, or does not answer three times, is paused in the file, and goes on by Emit alone. A ledger that is left
//     alone, since its breaker is open, or that takes no writes, pauses nothing, nor does a store that is full, restored or damaged: the run waits,
//     store_ok fails, and the scheduler offers it again.
//  6. Run key, manifest and commitment depend on policy, usage and ledger ref alone: neither on clocks nor on how many workers there are.
//  7. A policy id stands for one hash for ever.
//  8. Files are a copy of what the file of the node holds, written whole or not at all; settling does not wait for them.
//  9. Uploads that no run uses take at most rewarder.inputs.max_bytes_per_owner of one principal of a tenant and rewarder.inputs.max_bytes in all. One
//     that is not sealed is dropped rewarder.inputs.keep after its last part. The principal that opened an upload, and holders of rewarder.admin, can
//     list and drop it; a run keeps the upload that it uses. Until the first sweep after a start only uploads that have changed since are counted.
//  10. A damaged row fails the calls, and delays the run, that need it. It is logged once and fails store_ok until it reads well again; other runs
//     and uploads go on. A run is paid from rows that have been checked against its commitment, or not at all.
//
// # Tasks and queues
//
// Tasks: scheduler (accepts runs, offers what is left to do), worker (compute_workers), artifact_writer, intent_emitter (up to 8) and health_reporter.
// Queues of 512: work_req from HTTP (reject new), work (one retry after 50 to 150 ms by the caller, then dropped), results and intents (wait). The
// broadcast events, of 1024, drops the oldest. No view of the store is open over a wait. The node's janitor sweeps uploads each hour.
//
// # Lock order
//
// run_registry, which the quota of uploads and the damaged rows have too, counters; the configuration is an atomic pointer, read before either. Each is held over a few assignments, never over a wait.
package rewarder
