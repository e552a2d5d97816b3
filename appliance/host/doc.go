// Package host reads what the machine under the node is like: its limits, memory, disk, kernel and clock, and turns it into findings with advice.
//
// # Invariants
//
//  1. A function returns facts or an error; none logs, prints or ends the process.
//  2. Only Raise, NoDump and LockMemory change anything, and only of this process; SyncLatency removes the file it makes.
//  3. What cannot be read is said to be unknown. An unknown fact is never reported as good or bad.
//  4. Parsers take text of any shape without a panic; what they do not understand is an error or left out.
//  5. Every finding that is not ok says what to do.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package host
