// Package checkpoint makes and reads the signed statements of a log: checkpoints in the C2SP form
// (a note of origin, size and root), the timestamped cosignature of the node, those of witnesses,
// and the high-water file, which keeps the last checkpoint outside the database.
//
// # Invariants
//
//  1. A checkpoint that Open returns is signed by one of the given log keys, in the one spelling of
//     its signature. Signature lines of other keys are kept and are never an error.
//  2. A line that Cosignature returns signs that checkpoint with the key of that witness. Whole
//     refuses a note with a signature line of an unknown key.
//  3. The high-water file is replaced as a whole or not at all: the new file is synced before it is
//     renamed, and its folder afterwards.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None: values are immutable.
package checkpoint
