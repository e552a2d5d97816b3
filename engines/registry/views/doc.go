// Package views reads the log of the registry for its callers and its tasks: HEAD and the live
// proposals from the published state, versions, items, proofs and audit records from the file.
//
// # Invariants
//
//  1. A read never returns a row that is not synced: it goes by the published state, because the
//     file may hold a later commit.
//  2. Items of a version are checked against the root that its signers signed before they are
//     returned or cached.
//  3. A read that replays a part of the log holds one slot. It does not wait for a slot but returns
//     an error that is store.ErrSlow. Reads of HEAD need none.
//  4. Concurrent reads of one old version share one load.
//  5. A damaged row of a proposal or of a stored set is left out and flagged (stored_rows). Any
//     other damaged row is the error of the read.
//  6. Nothing is written but stored sets of items, by KeepSet and Kept.
//
// # Tasks and queues
//
// None. The cache of old versions has a buffer that drops when full; the flights encode_version and
// load_version bound the loads and their waiters.
//
// # Lock order
//
// Flights (one shard of encode_version or load_version) before cache_meta (of the version cache).
// No caller holds a lock while it loads.
package views
