// Package obs is how ronbox shows itself: metrics, log lines, and the probe table behind the readiness answers.
//
// # Invariants
//
//  1. One name has one type, one label set and one help text, whichever service uses it; a label that a service lacks is "".
//  2. A series is resolved where it is constructed. Counting and observing look nothing up and never wait.
//  3. A log call never waits for the reader of the log: while the writer task runs, lines that do not fit are dropped and counted.
//  4. A Secret, and any field whose key names one, prints as ***.
//  5. A probe that was never set fails. Readiness is computed from the table and from nothing else.
//
// # Tasks and queues
//
// Ring.Run is one task of service node, to be listed and started by whoever builds the logger. It drains the ring of log lines, which is
// bounded in bytes and drops the newest. The package starts nothing itself.
//
// # Lock order
//
// The mutexes of Metrics, Board and Ring are leaves: none is held over a call out of the package, a channel operation or a write, but for
// Ring.out, which serialises the writes themselves and is taken before Ring.mu.
package obs
