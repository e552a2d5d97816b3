// Package idem is the ledger's idempotency index: from the hash of who asked and under which key to the sequence number of the record that
// answered. New keys are in tables in memory; what is closed is sealed into the file as sorted runs, each behind a filter kept in memory.
//
// The index says which record a key led to last; whether that is still young enough its caller judges by the record's own time.
//
// # Invariants
//
//  1. Whatever was inserted, sealed, dropped, aborted or loaded: a key leads to its newest record, as a scan of the journal would find it,
//     until the run that holds it is dropped.
//  2. What a group inserted is seen by Lookup at once, by Find only after Committed, and by neither after Aborted.
//  3. A key is never missing between its table and its run: both change places in one step, after the sync of the run's last row.
//  4. A run without its meta row is none. Its slices are taken in order alone, so no run lacks rows; the first slice begins it anew.
//  5. Slots follow one another without a gap; the newest run is never dropped, so a boot knows from where to read the journal.
//  6. A bit of a run that a disk has changed makes no key one that was never used, nor one of another record: blocks of keys and the meta row
//     end in checksums, the filter is the one that the meta row names, a block that is not there is damage, and so is a gap between runs.
//  7. Seal and Drop depend on the file and the slice alone: repeated, they write the same rows.
//
// # Tasks and queues
//
// none: Insert, Lookup, Seal, Drop, Committed and Aborted belong to the committer, a Sealer to one task, Find and Due to anyone.
//
// # Lock order
//
// the lock of one shard of one slot, held for one access of its table, nothing inside it.
package idem
