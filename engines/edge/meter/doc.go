// Package meter counts the bytes that a node receives from the other nodes of its fleet, and makes
// the signed statements of usage.
//
// # Invariants
//
//  1. An object counts once in an epoch, from whatever node it comes, in the epoch of the stamp of
//     the command that counts it.
//  2. A statement attests at most what was received. Counts that a crash or an unknown outcome may
//     have lost are not counted again, and what exceeds a bound is not counted.
//  3. A statement is signed once, after the end of its epoch and a grace, and never changes. A file
//     that was copied from another node makes no statement of an epoch in which that node counted.
//  4. A damaged row costs the counts of the epochs that are not final, or the statement of its
//     epoch, and nothing else.
//
// # Tasks and queues
//
// Tasks (name, count):
//   - meter, 1: once a minute writes what was received, and the statements of epochs
//
// The ticker meter_tick merges missed ticks.
//
// # Lock order
//
// The counts that wait are guarded by a lock of the rank counters, under which no other is taken.
package meter
