// Package ledgertest provides test doubles of the ledger: Model, a reference implementation with
// maps and big integers that shares no rule with the engine; Faulty, which adds stalls, failures
// and lost answers to a client by a seed; and Conformance, the test suite for every ledger.Client.
//
// # Invariants
//
//  1. A Model decides one call at a time, in the order of their turns. If the context of a call
//     ends before its turn, the call has no effect.
//  2. Model writes true records and batches: each of its proofs verifies, and lverify has no
//     findings in its export.
//  3. The same seed and the same calls in the same order have the same faults. A Faulty waits only
//     through package time, so it runs in a bubble of testing/synctest.
//  4. A fault never changes an outcome, only whether and when its caller learns it.
//
// # Tasks and queues
//
//   - ledger.bus: broadcast of a Model, as the engine's.
//
// There are no tasks: the caller of a call, or Close, makes the repeated and late calls of a
// Faulty.
//
// # Lock order
//
// None: the turn of a Model and the dice of a Faulty are one-token channels, never held together.
package ledgertest
