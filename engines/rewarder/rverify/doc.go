// Package rverify computes and checks a reward run from its files alone. From usage, policy, pool
// and ledger ref it computes the allocations, the manifest and the commitment. It verifies proofs
// of the amount of an actor, or of its absence. It is independent of the engine: it uses math/big
// and plain slices and shares no code with it, so that a result on which both agree was computed
// twice.
//
// # Invariants
//
//  1. The same files give the same bytes, on any machine and in any order of the rows of a CSV
//     file.
//  2. A file that is not in canonical spelling is refused, and the fault names the member or the
//     line.
//  3. A folder is sound only if every byte of its manifest and its commitment follows from its
//     other files.
//  4. It reads no clock and calls no node.
//  5. Verify streams rows and allocations. It holds 52 bytes per actor, independently of names and
//     of the number of rows.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package rverify
