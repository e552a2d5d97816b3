// Package tables declares the rows of the index in the file of the store: its buckets and tables,
// the commands that write them, and the check of a file.
//
// # Invariants
//
//  1. Only commands of this package write rows of the index. The Kind of a command is never
//     renamed.
//  2. The seq of a name grows with each write, and a version is written once.
//  3. A provider record and the row of its expiry are written and removed together.
//  4. Rows have checksums. A row that does not check is an error that names it, not a panic.
//
// # Tasks and queues
//
// None. The committer of the store applies the commands.
//
// # Lock order
//
// None.
package tables
