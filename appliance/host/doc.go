// Package host reads facts about the machine: its limits, memory, disk, kernel and clock. It turns
// them into findings with advice.
//
// # Invariants
//
//  1. A function returns facts or an error. None logs, prints or ends the process.
//  2. Only Raise, NoDump and LockMemory change anything, and only in this process. SyncLatency
//     removes the file that it creates.
//  3. A fact that cannot be read is reported as unknown, never as good or bad.
//  4. Parsers accept any text without a panic. Text that they do not understand is an error or is
//     skipped.
//  5. Every finding that is not ok has advice.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package host
