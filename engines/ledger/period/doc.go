// Package period closes periods of a ledger: it builds the state after the last record of the
// period, and, once the ledger has closed it, drops the records and what was derived from them.
//
// # Invariants
//
//  1. The base of a period is a function of the base before and the records of the period. Live rows
//     have seen later records, so none is copied.
//  2. Nothing at or below the horizon is dropped before the horizon covers it, and nothing above it
//     ever is. Peaks of the log of batch roots stay.
//  3. A step that a crash interrupts begins again and writes the same rows.
//  4. Memory: some 64 MiB for the accounts that one pass builds, and 200 bytes for each open hold.
//
// # Tasks and queues
//
// None: the caller's goroutine sends commands to store.bulk, one at a time.
//
// # Lock order
//
// None.
package period
