// Package rverify computes and checks a reward run from its files alone: usage, policy, pool and the ledger's figure give the allocations, the
// manifest and its commitment; a proof gives the amount of one actor, or that it has none. It is written apart from the engine, over math/big and
// plain slices, and shares no code with it: whatever both agree on has been computed twice.
//
// # Invariants
//
//  1. The same files give the same bytes, on any machine and in any order of the rows of a CSV file.
//  2. A file that is not in its one canonical spelling is refused, and the fault names the member or the line.
//  3. A folder is sound only if every byte of its manifest and of its commitment is what its other files give.
//  4. It reads no clock and asks no node.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package rverify
