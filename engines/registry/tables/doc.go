// Package tables declares the rows of the registry in the file of the store: its buckets and
// tables, the commands that write them, the state of HEAD and of the live proposals that they are
// read into, and the check of a file.
//
// # Invariants
//
//  1. Only commands of this package write rows of the registry. The Kind of a command is never
//     renamed.
//  2. Apply of a command uses rows and the content of the command only: no clock, no randomness.
//     A command that a guard refuses writes nothing.
//  3. Each batch moves the audit head, so a batch that was decided on another HEAD or another audit
//     head is refused.
//  4. The tree covers HEAD: a command that appends a version adds its leaf.
//  5. A State and a HeadView are immutable once they are published.
//  6. Verify finds a flipped bit in any row that it reads. A row that does not decode is a problem
//     of the report, not a panic.
//
// # Tasks and queues
//
// None. The committer of the store applies the commands.
//
// # Lock order
//
// None.
package tables
