// Package pipeline changes the log of the registry: proposals are entered, approved by signers, and
// committed as versions, in batches of one task. Its Writer makes the calls of the outside.
//
// # Invariants
//
//  1. The task alone advances HEAD, by a compare-and-set on {version, hash} inside the transaction
//     of the store. Versions rise by exactly one. On a follower it gets no job.
//  2. A request is decided on the state with the steps of the batch before it. A batch succeeds or
//     fails as a whole, because later steps hash the results of earlier ones; a refused batch is
//     built again from the file.
//  3. Every accepted mutation, and every refusal of a request that reached the task, has one record
//     of the audit chain in the same transaction.
//  4. The new state is published after the sync, before the versions are sent and before any
//     answer.
//  5. Every accepted job is answered exactly once: done, refused, canceled or unknown, also at a
//     shutdown or a panic.
//  6. A proposal ends once: committed, expired, stale or withdrawn.
//  7. While the fork guard is tripped, only an adoption and a replay run.
//
// # Tasks and queues
//
// The task pipeline, 1, reads proposals_tx and approvals_tx; both reject when full. The tick
// pipeline_tick, each second, expires proposals and forgets old outcomes. Work of callers that
// needs no queue takes a slot, one for each core.
//
// # Lock order
//
// None.
package pipeline
