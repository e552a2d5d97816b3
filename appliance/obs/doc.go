// Package obs is how ronbox shows itself: metrics, log lines, spans, a flight recorder, and the probe table behind the readiness answers.
//
// # Invariants
//
//  1. One name has one type, one label set and one help text, whichever service uses it; a label that a service lacks is "".
//  2. A series is resolved where it is constructed. Counting and observing look nothing up and never wait. A series whose label comes and goes
//     is removed by its owner.
//  3. A log call never waits for the reader of the log: from the start until the writer task has returned, lines that do not fit are dropped
//     and counted.
//  4. A Secret, and any field or member of a value whose name is that of one, prints as ***, in log lines and in spans. A line is one line
//     of printable letters whatever was logged, and a text in it has at most 16 KiB.
//  5. Of the lines that are alike (level, service, event, route, status) at most ten are written in a second that begins with the first of
//     them; one more says how many were not. Beyond 1,024 sorts of lines in a second, those of a level are alike. Every line is written,
//     counted there, or counted as dropped.
//  6. A probe that was never set fails. Readiness is computed from the table and from nothing else.
//  7. A span never waits for its collector, and one that failed is sent however the dice fell. No text spoils the spans it is sent with. A
//     tracer that is off allocates nothing.
//
// # Tasks and queues
//
// Ring.Run is one task of service node, which the builder of the logger lists and starts. It drains the ring of log lines, which is
// bounded in bytes and drops the newest, and once a second lets the sums out that are due. Behind a tracer that is on stand the tracing
// library's batcher, a goroutine and a queue of 2,048 spans that drops the newest; the Tracer owns and Close joins it. A Flight that
// records has a goroutine of the runtime, until the last Stop. The package starts nothing else.
//
// # Lock order
//
// The mutexes of Metrics, Board, Ring, Flight and of the table of repeats are leaves: none is held over a call out of the package, a channel
// operation or a write, but for Flight.mu, which is held while the runtime copies its window into memory, and Ring.writing, which serialises
// the writes themselves and is taken before Ring.mu. Control.mu and Tracer.mu are taken before nothing but the logging library's own.
package obs
