// Package period closes periods of a ledger: it builds the state after the last record of the
// period, writes the file of the period and reads it back, and, once the ledger has closed it,
// drops the records and what was derived from them.
//
// # Invariants
//
//  1. The base of a period is a function of the base before and the records of the period. Live
//     rows have seen later records, so none is copied.
//  2. Nothing at or below the horizon is dropped before the horizon covers it, and nothing above it
//     ever is. Peaks of the log of batch roots stay.
//  3. A step that a crash interrupts begins again and writes the same rows.
//  4. With an archive no period is closed whose file the archive has not taken. A file is removed
//     only after all of its copy was read back from there.
//  5. No period is closed while an idempotency key that counts leads to one of its records, or may
//     do so by the clock: before its last step a closing waits.
//  6. A canceled closing ends after the file that it has placed is removed: no later closing of the
//     period meets the file. If a cancel is interrupted, the task goes on with it.
//  7. Memory: some 64 MiB for the accounts that one pass builds, and 200 bytes for each open hold.
//
// # Tasks and queues
//
//   - closer: one task, producer of store.bulk, and of store.control if the store is full. It does
//     one step of a closing after the other, and drops rows as commits take pages, also those of
//     the period before while it closes the next one. Each hour it copies files of earlier periods
//     that the archive does not have.
//   - close_asked: watch; a call that asks for a closing or cancels one -> closer.
//   - close_tick: ticker; missed ticks merge.
//
// # Lock order
//
// None.
package period
