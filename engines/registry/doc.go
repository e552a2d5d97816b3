// Package registry keeps the node's authoritative, append-only, signed list of descriptors: states are proposed,
// approved by M of N signers, committed by one pipeline, and never edited after.
//
// # Invariants
//
//  1. Only the pipeline task advances HEAD, and it does so by a compare-and-set on {version, hash} inside the store's
//     transaction. Versions rise by exactly one.
//
//  2. A version exists only with signatures of at least the threshold of distinct keys in force, checked again in the
//     transaction's decision and offline by anyone. Nothing bypasses the quorum.
//
//  3. A batch stands or falls whole: one failed guard refuses all its ops, because later ops hash what earlier ones wrote.
//
//  4. Each accepted mutation and each refusal of an authenticated caller that reached the pipeline is one record of the
//     audit chain, in the same transaction.
//
//  5. What readers see (State behind one atomic pointer) is published after the sync, before the broadcast, before the
//     answer: who saw an answer reads its own write. Published values are never mutated.
//
//  6. Every accepted job is answered exactly once: done, refused, cancelled or unknown, shutdown and panics included.
//
//  7. A proposal leaves pending once, for committed, expired, stale or withdrawn. How it ended is kept as long as
//     its version, else for 30 days; retention removes it sooner, with the audit record of it.
//
//  8. Nothing is deleted before a signed statement of retention is synced, and then only what an archived checkpoint covers, never HEAD.
//     Genesis, changes of signers, tiles and checkpoints stay: a pruned log verifies from genesis.
//
//  9. What a witness answers is kept only if it is a cosignature of that checkpoint by the key that the signer set names; a witness holds up no
//     commit and no checkpoint. A witness that has seen another log is an objection: it is kept, shown and counted. When the signed witness
//     policy cannot be met without the witnesses that object, the fork guard trips and stays over restarts, until a catch-up brings what they
//     have seen or an operator settles it.
//
//  10. A damaged row of a proposal or of a kept set is left out and flagged (stored_rows); the registry serves on. Any other row that does
//     not fit the log ends Recover with store.ErrCorrupt, and an engine that has not recovered can be asked, reloaded, purged and closed.
//
// # Tasks and queues
//
// Tasks: pipeline (sole producer of commands that touch HEAD), publisher (committed_tx to updated), checkpointor (beside it, and ending with it, up
// to four callers of witnesses), pruner (sole deleter of
// versions, slices), deep_verifier (read-only, slices).
// Queues: proposals_tx and approvals_tx (reject new), fed by HTTP, read by the pipeline; retention_cmd_tx from checkpointor to pruner. Broadcasts: committed_tx and
// updated (drop oldest). Ticks: pipeline_tick, verify_tick (missed ticks merge). The cache of old versions hides a set
// buffer that drops when full.
//
// # Lock order
//
// none: state is published through atomic pointers and owned by one task each. The version cache has one lock, a leaf, against
// its own closing, and the flights of loads (encode_version, load_version) have one each; no caller holds one while it loads.
package registry
