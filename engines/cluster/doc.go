// Package cluster makes the node a member of a cluster. It runs hashicorp/raft over the store: the
// entries of the log are the rows of groups, and the file is the snapshot.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-26.
//
// Terms: a member is a server of the configuration; a voter has a vote, a standby has none. A life
// is the time from a boot of the node until its end; the process then executes itself again. A node
// is in office from the moment at which its store leads. A barrier is a command without data,
// which a new leader appends to learn that all entries of earlier leaders are in its file. The
// place of a file is the index and the term of its last entry. A shot is a verified snapshot of
// the file for one reader.
//
// # Invariants
//
//  1. The file holds only rows that a quorum of the voters has in its logs. The committer
//     proposes a group with its transaction open and commits it after the FSM has met the entry.
//     One proposal is in flight at a time. A follower commits what has gathered in one transaction.
//  2. A proposal ends in one of three ways: the entry is next in the log of a quorum; or no log
//     has it and none will; or it is unknown whether a log has it. The second is claimed only if
//     the latch has not passed the entry to the log, which then refuses it, or if the log has
//     refused it cleanly. A leader sends only what its own log has.
//  3. A node leads once in a life. It takes office after the barrier of its term has reached the
//     FSM. When it stops leading, or meets an entry of another leader while in office, its life
//     ends. After that the FSM applies nothing; the next life gets the entries again.
//  4. After the first error of the log that is not clean, the log is not used any more in this
//     life, and the process ends. An error is clean if a write of entries has found no room. The
//     term and the vote must be stored.
//  5. At boot what a power cut has left of an uncommitted batch is cleared from the end of the log.
//     Then the log must lead to the place of the file: it does not end before it, has no gap
//     behind it, and has the same term there. The vote must be at least of that term. The log
//     belongs to the server that cluster/node.json names. Otherwise Start fails with
//     store.ErrCorrupt and names the repair. The exception is a place that init, recovery or
//     install has written: the first boot after it removes entries that do not lead to it. Before
//     raft starts, that boot binds the file to the log by an id that both have. From then on a log
//     with another id, or without one, is refused. The file and the vote are never removed here.
//  6. Raft reads the place and the members of its snapshot from the store. A file for another
//     member is sent from a shot, so no read transaction is open while it is sent. A file that
//     arrives gets the name ronbox.db.install only after it was verified and has its place and
//     members; the next boot renames it.
//  7. The log is truncated only up to the place of the file. A member that is more than 10,240
//     entries behind gets the file; or fewer, if the log has grown beyond 1 GiB.
//  8. An unfit node votes and does not stand for election: its log has found no room, its file
//     cannot take the entries, its clock is more than 500 ms off the median of all, its last two
//     lives were short, it was unfit as the leader of its last life, or Fit has named a reason. It
//     asks no other node for its vote. The only voter is always fit. After ten heartbeats without
//     a leader an unfit node stands, unless its file cannot take the entries or Fit is firm. A
//     node that is elected and cannot take the entries ends its life. While the clocks of fewer
//     than two others were read within a minute, the last known median counts as one more clock.
//  9. Confirm returns nil only if a quorum has accepted this node as the leader after the call
//     began. One round serves all callers that came before it began.
//  10. Remove refuses to leave fewer answering voters than a quorum of those that remain. A member
//     is made a voter after it was caught up for 3 s, unless it is a standby for good. No member
//     is removed by the node itself.
//  11. A write of the log or a commit that takes longer than 5 s ends the life.
//  12. The leadership is transferred only to a voter that has just said that it is fit and that
//     lacks at most 250 entries. No proposal is under way meanwhile: the gate admits one proposal
//     or one transfer. After a transfer that has failed the gate opens once raft takes entries
//     again: within two heartbeats, or six if the target has stopped. A leader that is unfit for
//     two ticks of the watchdog resigns; if no other voter can lead it stays, and asks again
//     after ten heartbeats.
//
// # Tasks and queues
//
// Tasks:
//
//   - follower (1): writes the entries of another leader to the file: all that have gathered, in
//     one transaction.
//   - leadership (1): takes office after an election: barrier, then store.Lead. In office it
//     transfers the leadership when the watchdog has found the node unfit.
//   - confirmer (1): runs the rounds of Confirm.
//   - stabiliser (1, every 500 ms): makes caught-up members voters, bounds the log, and asks Fit.
//   - watchdog (1, every 500 ms): ends the life of a hung node, logs whether it is fit, and wakes
//     leadership if it leads and is not.
//
// Raft and its log have goroutines of their own, which end in Close:
//
//   - run: the state machine of raft; the only writer of log and vote, but for heartbeats that
//     bring a newer term.
//   - runFSM: adds entries of another leader to the backlog, or waits until Applied for a group of
//     this node. At a barrier, a configuration or a truncation it waits for the backlog.
//   - runSnapshots: truncates the log every 5 to 10 s if it has grown by 8,192 entries, or by 16
//     while its files are larger than 1 GiB.
//   - on the leader, for each other member: replicate and heartbeat. Pipelining is off.
//   - on the leader: emitLogStoreMetrics.
//   - listen, and one goroutine for each connection to the peer port.
//   - runRotate, of the log: begins a segment in advance.
//
// The queue backlog (256 entries, 8 MiB) holds entries from runFSM for follower. A full one makes
// runFSM wait.
//
// Queues of raft: applyCh (unbuffered; the committer and leadership), fsmMutateCh (128 batches of
// at most 16 entries; a full one blocks run), verifyCh (64; the confirmer uses one place). Futures
// are awaited only by the confirmer, by changes of the configuration and by transfers: raft does
// not answer all of them when it shuts down. So Close comes after the tasks and the committer have
// ended.
//
// The flight cluster.change runs changes of the configuration: at most 16, each for 30 s. The
// flight cluster.transfer runs one transfer of the leadership, for at most 30 s; changes are
// refused meanwhile.
//
// Signals: closing, deposed, elected; wake of leadership and confirmer, and less of the backlog
// (capacity 1).
//
// # Lock order
//
// streams.mu, peers.mu and rounds.mu are leaves: none is held while another lock is taken, or over
// I/O, channels or calls of raft.
package cluster
