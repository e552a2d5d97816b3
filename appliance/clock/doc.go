// Package clock provides the node's clock. Its reading is the time of everything that the node
// stores and of everything that is compared with a stored time: stamps, idempotency keys, holds,
// proposals, limits by day, uploads, retention and scheduled work. What others sign or check by
// their own clocks keeps the wall clock: caveats of tokens, sessions, TLS, HTTP dates, logs, and
// the times inside signed payloads.
//
// The reading follows the wall clock, but does not believe it at once. It advances with
// CLOCK_BOOTTIME, which counts while the machine sleeps and which nobody sets.
//
// # Invariants
//
//  1. The reading never goes back, but in Begin, and never stands still. Between two readings it
//     advances by at least half of the time on CLOCK_BOOTTIME, and by at most that time unless it
//     steps.
//  2. A wall clock that is at most Config.Step ahead of the reading is believed: the reading goes
//     to it.
//  3. A wall clock that is further ahead is believed, in one step, after it has stayed ahead by the
//     same amount (± 1 s) for Config.Settle, or for one minute while the kernel reports that the
//     clock is synchronised. If it comes back earlier, nothing has happened.
//  4. While the wall clock is behind, the reading goes on: at half speed if the difference is below
//     one hour, else at full speed.
//  5. At boot the reading begins at the newest stamp of the file. A wall clock that is ahead of it
//     is believed at once if it is synchronised or less than 90 days ahead, because the node was
//     off. A wall clock before the commit time of the binary is never believed. A member of a
//     cluster begins again when it leads: it has stamped nothing before in this life, and knows by
//     then what the others' clocks say.
//  6. For one hour of CLOCK_BOOTTIME after a boot or a step, Settled is false and the node forgets
//     no idempotency key: a clock that was wrong at that moment is noticed before.
//
// # Tasks and queues
//
// None. The clock looks at the wall clock whenever it is read. The health gate reads it every
// 250 ms.
//
// # Lock order
//
// One leaf lock, held for a reading.
package clock
