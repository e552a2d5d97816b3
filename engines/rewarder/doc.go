// Package rewarder computes a payout set from sealed usage and a signed policy, proves it, and has
// the ledger pay it exactly once. Anyone can recompute the payout set from its inputs.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-22.
//
// Terms: a slot is the row of an epoch of a tenant; a run occupies it. An upload becomes an input
// when it is sealed. A chunk is 512 rows of usage or 512 allocations. An intent is one transaction
// of the ledger that pays a chunk. A parked payee is one that the ledger has refused.
//
// # Invariants
//
//  1. An epoch of a tenant has one slot, and a slot has one run. Another run takes the slot only if
//     the run before it failed, in which case it paid nothing.
//  2. A run that was answered with 202 is in the file. Queues carry handles only: losing one loses
//     no money, because the scheduler reads the pending work from rw/todo at each start and each
//     second.
//  3. Nothing of a run is visible before it is sealed. A run is sealed after its staged allocations
//     were read back by independent code and payout plus residual equal the pool. Otherwise it is
//     quarantined for good and has no intents.
//  4. An intent has one key, derived from the run, its commitment and the chunk. No second key is
//     ever made for it. The ledger executes a key once and lets one run key settle an epoch, so
//     paying again is a look-up. A run has one chunk in flight.
//  5. A run that the ledger refuses, or does not answer three times, is paused in the file until
//     Emit resumes it. An open breaker, a ledger that takes no writes, and a store that is full,
//     restored or damaged pause nothing: the run waits, store_ok fails, and the scheduler offers
//     the run again.
//  6. Run key, manifest and commitment depend on policy, usage and ledger ref alone, not on clocks
//     or on the number of workers.
//  7. A policy id is bound to one hash for ever.
//  8. Artifact files are copies of rows of the node's file, and are written whole or not at all.
//     Settlement does not wait for them. Lost files can be rewritten with the same bytes, unless a
//     row no longer matches the digests that the run has recorded.
//  9. Uploads that no run uses take at most rewarder.inputs.max_bytes_per_owner per principal of a
//     tenant, and rewarder.inputs.max_bytes in all. An unsealed upload is dropped
//     rewarder.inputs.keep after its last part. The principal that opened an upload, and holders of
//     rewarder.admin, can list and drop it; a run keeps the upload that it uses. Until the first
//     sweep after a start, only uploads that changed since the start are counted.
//  10. A damaged row fails the calls and delays the runs that need it. It is logged once and fails
//     store_ok until it reads well again. Other runs and uploads go on. A run is paid only from
//     rows that were checked against its commitment.
//  11. In a fleet, the command that accepts a run reads HEAD of the registry in its own
//     transaction. If HEAD pins a policy of the tenant, only pinned policies are accepted; if HEAD
//     is missing, stale or not to be believed, nothing is. The run and its audit row record the
//     version and the pin.
//
// # Tasks and queues
//
// Tasks:
//
//   - scheduler (1): accepts runs, several in flight, so that the committer syncs and answers them
//     together; offers pending work to the other tasks.
//   - worker (rewarder.concurrency.compute_workers): computes, reads back and seals runs.
//   - artifact_writer (1): writes the files of runs.
//   - intent_emitter (up to 8): has the ledger pay runs.
//   - health_reporter (1): sets the readiness keys.
//
// Queues and broadcasts:
//
//   - work_req, 512, reject new: HTTP -> scheduler.
//   - work, 512, one retry by the caller after 50 to 150 ms, then rejected: scheduler -> worker.
//   - results, 512, wait: worker, scheduler -> artifact_writer.
//   - intents, 512, wait: worker, scheduler -> intent_emitter.
//   - events, 1024, drop oldest: scheduler, worker, artifact_writer, intent_emitter -> Follow.
//
// Inputs are sealed by the call that asks for it, in one command of the committer, and not by the
// scheduler: the committer alone orders the parts, the seal and the run that uses it, sealing again
// gives the same input, and the scheduler accepts a run only of an input that is sealed. A place in
// work_req would let a seal wait behind runs, and would decide nothing.
//
// No view of the store is open during a wait. The node's janitor calls Sweep each hour.
//
// # Lock order
//
// run_registry, then counters. The quota of uploads and the set of damaged rows share the rank of
// run_registry. The configuration is an atomic pointer that is read before either lock. Locks are
// held for a few assignments, never during a wait.
package rewarder
