// Command ronmutate tests the tests: it changes the code of a package in one place, a mutant, and sees whether a test fails. A mutant that no
// test kills is either equivalent, a change that nobody can see, or a hole in the tests.
//
// The mutants of a file are all there are by a few simple rules (kinds.go), less what makes words and sizes but no behaviour (skip.go). A
// sample of them is drawn by a seed. Each is built with go test -c -overlay and its test binary is run in the folder of its package, so that
// nothing is written into the source tree. A mutant that does not compile is none: the next one is drawn. A test binary that does not end,
// or wants more memory than a test may, has killed its mutant.
//
// # Invariants
//
//  1. The source tree is read only; what is built and what tests write is under one scratch folder, which is removed at the end.
//  2. The same seed over the same source draws the same mutants, however many are tried at a time, and shows rapid's tests the same cases.
//  3. The tests pass on the code as it is before any mutant is tried, and a test that has failed must fail again: what fails anyway, or now and
//     then, kills nothing.
//  4. Only what the compiler refuses is no mutant. A build that ends in any other way ends the whole run.
//  5. No process that was started is left behind, not by Ctrl-C either; a summary is printed of what was tried so far.
//  6. The exit code is 0 if the share killed is enough, 1 if it is not, 2 if nothing could be said, 130 after Ctrl-C.
//
// # Tasks and queues
//
// None lives longer than a run: a leg that hands out mutants and prints, and a leg for each that is tried at a time. Queues: todo (mutants
// to try) and done (verdicts), each with room for all that are tried at a time, so that no send waits.
//
// # Lock order
//
// none
package main
