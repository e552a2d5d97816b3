// Package obs provides the node's metrics, log, trace spans, flight recorder and the probe table
// that readiness is computed from.
//
// # Invariants
//
//  1. One metric name has one type, one label set and one help text in all services. A label that
//     a service lacks is "".
//  2. A series is resolved when its owner is constructed, or by its first use if it has many
//     siblings that are never used, as that of a route has. After that, counting and observing
//     neither look anything up nor wait. An owner that changes the labels of its series removes
//     the old series.
//  3. A log call never waits for the reader of the log. Until the writer task has returned, lines
//     that do not fit the ring are dropped and counted.
//  4. A field or member with the name of a secret ([Hides]) prints as ***, in log lines and in
//     spans. Each log entry is one line of printable characters, and each text in it has at most 16
//     KiB.
//  5. Log lines form a group if they share level, service, event, route and status. At most ten
//     lines of a group are written in the second that begins with the first of them; one more line
//     then states how many were suppressed. Beyond 1,024 groups in a second, all lines of a level
//     form one group. Every line is written, counted in such a line, or counted as dropped.
//  6. A probe that was never set fails. Readiness depends on the probe table only. A probe whose
//     cause is a [State] does not count for the node, only for its service alone.
//  7. A span never waits for its collector. A failed span is always sent, whatever the sampling
//     rate. A malformed text never spoils the other spans of its batch. A disabled tracer does not
//     allocate.
//
// # Tasks and queues
//
//   - ring (task, 1): [Ring.Run] drains the log ring to the output and once a second writes the
//     lines that count suppressed ones. The builder of the logger lists and starts it.
//   - log ring (queue, bounded in bytes, drop newest): log calls -> Ring.Run.
//   - span batcher (1 goroutine of the tracing library, only if tracing is on; 2,048 spans, drop
//     newest): ended spans -> collector. The Tracer owns it, and Close joins it.
//   - flight recorder (1 goroutine of the runtime while recording): started by the first Start and
//     ended by the last Stop of a [Flight].
//
// # Lock order
//
// The mutexes of Metrics, Board, Ring, Flight and of the table of repeated lines are leaves: none
// is held during a call out of the package, a channel operation or a write. There are two
// exceptions: Flight.mu is held while the runtime copies its window into memory, and Ring.writing,
// which serializes the writes, is taken before Ring.mu. Under Control.mu and Tracer.mu only locks
// of the logging library are taken.
package obs
