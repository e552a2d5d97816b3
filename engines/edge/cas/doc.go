// Package cas keeps objects as files that are named by the BLAKE3 of their bytes.
//
// # Invariants
//
//  1. A file has its name only once all its bytes are on the disk; Place and Sync are durable when they return.
//  2. Read returns bytes that hash to the name, or ErrCorrupt. Verify reads every byte of the file, and reports the same.
//  3. One goroutine at a time calls Prepare, Place, Sync, Remove and Quarantine; any may call the rest. An open file stays readable whatever
//     becomes of its name.
//  4. What a crash leaves is a file in tmp, which Prepare removes, or a whole object that nobody has heard of.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package cas
