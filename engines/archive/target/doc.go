// Package target keeps the objects of an archive: in a directory, such as a mounted disk, or in a
// bucket of an S3 server.
//
// # Invariants
//
//  1. Create never writes over a name. A name has a whole object, or nothing: an interrupted Create
//     leaves at most a temporary file, which List does not show and Sweep removes. Only a server
//     that cannot refuse to write over a name is asked for the name first; see [Exclusive].
//  2. An object that Create has returned nil or ErrExists for survives a power cut.
//  3. Nothing is created in a directory without a mark. A mark is made only in an empty directory
//     that the caller has not used before, and the directory itself is never created: a disk that
//     is not mounted is ErrChanged.
//  4. An object is sent to a server in one request with its sums, and never in parts. Calls other
//     than Create are repeated while the server answers that it is busy, or a connection breaks.
//  5. No error has a credential, or anything that a server was sent or has said beyond its status
//     and the code of S3. A file of credentials that other users may read is refused.
//
// # Tasks and queues
//
// None. net/http keeps connections for 30 seconds.
//
// # Lock order
//
// None.
package target
