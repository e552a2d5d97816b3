// Package cas keeps objects as files that are named by the BLAKE3 of their bytes.
//
// # Invariants
//
//  1. A file has its name only after all its bytes are on the disk. Place followed by Sync is
//     durable.
//  2. Read returns bytes that hash to the name, or ErrCorrupt. Verify reads every byte of the file
//     and reports the same.
//  3. One goroutine at a time calls Prepare, Place, Sync, Remove and Quarantine. All other methods
//     may be called concurrently. An open file stays readable after its name has changed.
//  4. A Dir keeps up to 256 files open for later calls of Share. The file of an object that was
//     removed, replaced or set aside is closed with its last reader, and its room on the disk is
//     then free.
//  5. A crash leaves only files in tmp, which Prepare removes, and complete objects.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// The lock of the open files is a leaf.
package cas
