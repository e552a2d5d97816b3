// Package registry keeps the authoritative list of descriptors of the node as an append-only,
// signed log. Versions are proposed, approved by M of N signers, and committed by one pipeline.
// They are never edited.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-22.
//
// # Terms
//
//   - payload: the canonical bytes that signers sign; a draft is a payload with members left out
//   - entry: the log entry of a version, with its approvals; its hash covers the log before it
//   - follower: a node whose log is a verified copy of that of another node, the hub. It has
//     neither the audit chain nor the proposals of the hub, signs nothing and prunes nothing
//   - fork guard: refuses writes while the file may be older than its log
//   - mark: the last signed checkpoint, kept outside the database (the high-water mark)
//   - set: the items of a version, stored in chunks so that reads of old versions replay few
//     deltas
//   - statement: the signed record of what retention is about to remove
//   - witness: a third party that cosigns checkpoints; an objection is its refusal of the log
//
// # Invariants
//
//  1. Only the pipeline task advances HEAD, by a compare-and-set on {version, hash} inside the
//     transaction of the store. Versions rise by exactly one. On a follower only the follower task
//     does, and the pipeline gets no job.
//  2. Every version has signatures of at least the threshold of distinct keys in force. The
//     pipeline checks them when it decides, and anyone can check them offline. No call bypasses
//     the quorum.
//  3. A batch succeeds or fails as a whole. One failed guard refuses all its steps, because later
//     steps hash the results of earlier ones.
//  4. Every accepted mutation, and every refusal of an authenticated caller that reached the
//     pipeline, has one record of the audit chain in the same transaction.
//  5. The state that readers see is published after the sync, before the broadcast and before the
//     answer: a caller that has an answer reads its own write. Published values never change.
//  6. Every accepted job is answered exactly once: done, refused, cancelled or unknown, also at a
//     shutdown or a panic.
//  7. A proposal ends once: committed, expired, stale or withdrawn. Its outcome is kept as long as
//     its version, or for 30 days if it has none. Retention may remove it earlier, with its audit
//     record.
//  8. A row is deleted only after a signed statement of retention is synced, and only if an
//     archived checkpoint covers it. HEAD, genesis, changes of signers, tiles and checkpoints are
//     never deleted: a pruned log verifies from genesis, and another node can read what of it is
//     kept (Horizon).
//  9. Nothing is signed or committed while the file may be older than its log; see package seal.
//  10. A damaged row of a proposal or of a stored set is left out and flagged (stored_rows), and
//     the registry serves on. For any other row that does not fit the log Recover returns
//     store.ErrCorrupt. An engine that has not recovered can be asked, reloaded, purged and
//     closed. After Stand it answers reads of payloads, entries and tiles; Stand writes nothing.
//  11. A follower believes nothing that it has not verified; see package follow.
//
// # Tasks and queues
//
// Tasks:
//   - pipeline, 1: the only producer of commands that change HEAD, except on a follower; see
//     package pipeline
//   - follower, 1, only with follow.url: copies the log of the hub; see package follow
//   - publisher, 1: committed_tx to updated; after a restart it sends HEAD
//   - checkpointor, 1, and witness, 1: see package seal
//   - pruner, 1: see package retain
//   - deep_verifier, 1: verifies the log in slices of verify.slice; stores its progress, an
//     archived checkpoint, at most once in 10 s and continues there after a restart; begins a new
//     pass at genesis each verify.full_pass
//
// Queues:
//   - proposals_tx, 512, reject new: HTTP to pipeline
//   - approvals_tx, 512, reject new: HTTP to pipeline
//   - committed_tx, broadcast, 1024, drop oldest: pipeline or follower to publisher,
//     deep_verifier and checkpointor
//   - updated, broadcast, 1024, drop oldest: publisher to event streams, which report a loss or a
//     gap as lagged
//
// Ticks are pipeline_tick and verify_tick; missed ticks merge.
// testdata/golden/topology.md draws the shutdown sequence from these declarations.
//
// # Lock order
//
// None, but those of package views. State is published through atomic pointers, each owned by one
// task.
package registry
