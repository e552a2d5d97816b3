// Package upkeep does the recurring work of a node beside its services: snapshots, the jobs of the
// janitor, traces of slow commits, and series of measurements.
//
// # Invariants
//
//  1. A snapshot leaves the free space that the store requires. Without room for a scheduled one
//     the oldest are removed, if that makes enough room, but never the last two.
//  2. The janitor runs one job at a time. A failed job is logged, and runs again when it is due, or
//     after a minute if the store was busy.
//  3. The recorder runs only while commits are slow, or while a caller waits for it. The number of
//     its dumps is bounded. A node in memory keeps none.
//  4. A point of a series is the change since the point before. A value that is not known is no
//     value, and never 0.
//  5. The check of a folder for snapshots writes nothing. It names the user and the unit that may
//     not write there.
//
// # Tasks and queues
//
// The node lists the tasks; Run of each type is one.
//
//   - janitor: 1 background task, every second.
//   - flight_recorder: 1 background task, every 250 ms.
//   - series_recorder: 1 background task, every 5 s.
//   - node.slow_commits: queue, 1, drop newest; committer -> flight_recorder.
//
// # Lock order
//
// Series.mu is a leaf: RankCounters.
package upkeep
