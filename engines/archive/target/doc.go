// Package target keeps the objects of an archive: in a directory, such as a mounted disk.
//
// # Invariants
//
//  1. Create never writes over a name. A name has a whole object, or nothing: an interrupted Create
//     leaves at most a temporary file, which List does not show and Sweep removes.
//  2. An object that Create has returned nil for survives a power cut.
//  3. Nothing is created in a directory without a mark. A mark is made only in an empty directory
//     that the caller has not used before, and the directory itself is never created: a disk that
//     is not mounted is ErrChanged.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package target
