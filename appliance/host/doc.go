// Package host reads facts about the machine: its limits, memory, disk, kernel and clock. It turns
// them into findings with advice. It also replaces files so that they survive a power cut.
//
// # Invariants
//
//  1. A function returns facts or an error. None logs, prints or ends the process.
//  2. Only Raise, NoDump and LockMemory change the process. Only SyncLatency, ReplaceFile and
//     SyncDir write to a disk; SyncLatency removes the file that it creates.
//  3. A fact that cannot be read is reported as unknown, never as good or bad.
//  4. Parsers accept any text without a panic. Text that they do not understand is an error or is
//     skipped.
//  5. Every finding that is not ok has advice.
//  6. A file that ReplaceFile replaces is complete, old or new, at every moment.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package host
