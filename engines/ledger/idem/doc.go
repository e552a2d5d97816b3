// Package idem is the ledger's idempotency index. It maps hashed keys to the seqs of the records
// done under them. New keys are in tables in memory. Closed tables are sealed into the file as
// sorted runs, each with a filter in memory.
//
// The index returns the newest record of a key. The caller decides by the record's time whether the
// key still counts.
//
// # Invariants
//
//  1. A key leads to its newest record, as a scan of the journal would find it, until the run with
//     the key is dropped. The record of a key that has ended may be gone: its period is closed.
//  2. Lookup sees the insertions of a group at once, Find only after Committed. Neither sees them
//     after Aborted.
//  3. A key is never missing between its table and its run: both change places in one step, after
//     the sync of the run's last row.
//  4. A run without a meta row does not exist. Slices are accepted only in order, so no run lacks
//     rows; the first slice restarts the run.
//  5. Slots follow one another without a gap; the newest run is never dropped, so a boot knows from
//     where to read the journal.
//  6. A flipped bit in a run never makes a used key unused or leads it to another record: blocks of
//     keys and the meta row end in checksums, the meta row has a digest of the filter, and a
//     missing block or a gap between runs is damage.
//  7. Seal and Drop depend only on the file and the slice. Repeated, they write the same rows.
//
// # Tasks and queues
//
// None. Only the committer calls Insert, Lookup, Seal, Drop, Committed and Aborted. A Sealer
// belongs to one task. Find and Due are safe for concurrent use.
//
// # Lock order
//
// One leaf lock per shard of a slot, held for one access of its table.
package idem
