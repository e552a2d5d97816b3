// Package ledgertest has what tests hold a ledger against: Model, a reference in maps and big integers that shares no rule with the engine;
// Faulty, which makes any client stall, fail and lose answers as a seed says; and Conformance, the suite that every ledger.Client passes.
//
// # Invariants
//
//  1. A Model decides one call at a time, in the order in which calls take its turn; a call whose context ended before that changed nothing.
//  2. Model writes true records and batches: every proof it gives verifies, and lverify finds nothing in its export.
//  3. The same seed and the same calls in the same order meet the same faults. A Faulty waits by package time alone, so that it runs in a
//     bubble of testing/synctest.
//  4. A fault never changes an outcome, only whether and when its caller learns of it.
//
// # Tasks and queues
//
// The bus of a Model is ledger.bus, as the engine's. There are no tasks: what a Faulty does a second time, or late, is done by the caller of
// the call that it comes with, and by Close.
//
// # Lock order
//
// none: a Model's turn and a Faulty's dice are one-token channels, never held together.
package ledgertest
