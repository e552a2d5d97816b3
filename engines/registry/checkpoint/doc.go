// Package checkpoint makes and reads the signed statements of a log: checkpoints in the C2SP form (a note of origin, size and root), the
// node's own timestamped cosignature under them, those of witnesses, and the high-water file that keeps the last one outside the database.
//
// # Invariants
//
//  1. A checkpoint that Open answers is signed by one of the log keys given, and its signature is spelled in the one way; signature lines of
//     other keys are kept and never a fault.
//  2. A line that Cosignature answers is of that checkpoint, by the key of that witness. Whole finds any line that nobody known has made.
//  3. The high-water file is replaced whole, or not at all: it was synced before it got its name, and its folder after.
//
// # Tasks and queues
//
// none: callers drive it.
//
// # Lock order
//
// none: values are immutable.
package checkpoint
