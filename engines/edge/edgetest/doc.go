// Package edgetest has what tests of the edge share: stations, which are the other nodes of a
// fleet, and a rig of the parts below the engine.
//
// # Invariants
//
//  1. A station and a rig end with their test.
//
// # Tasks and queues
//
// Those of the parts.
//
// # Lock order
//
// None. The mutexes are leaves.
package edgetest
