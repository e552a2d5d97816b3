// Package server provides the node: it wires all packages, starts and stops them in order, applies
// new configurations, and tracks the readiness of the node. .github/CONTRIBUTING.md says how to add
// an engine.
//
// # Invariants
//
//  1. New opens and starts nothing, so that the whole topology can be printed without a node.
//  2. The lifecycle is a pure function of phase and event, in package process. Only Run changes the
//     phase and performs the actions.
//  3. Nothing is written and no socket is bound before the file is locked and checked. Only probes
//     are answered before all state is recovered.
//  4. A stop closes gate, services, lanes, sockets and file, in this order. Every accepted request
//     is answered. Services drain in parallel, except that the ledger writes changed balances after
//     the workers of the wallet have ended. The audit row of the drain, the answer to a drain that
//     waits, and the log line "stopped" count the tasks and requests of each service and kind that
//     finished, were cancelled, or were aborted.
//  5. A poisoned store ends the process without another write to the file.
//  6. The database and the log contain no secret. An action outside the file appends an audit row.
//  7. A reload is atomic: every part prepares, then all swap. If a part cannot prepare, the parts
//     before it are undone in reverse order. Each changed configuration gets one version number.
//  8. A disabled service has no task and no route, and its rows stay in the file. The ledger is
//     always enabled.
//  9. Configured assets are declared before the gate opens and at each reload. Assets are never
//     removed.
//  10. In memory mode no path is opened for writing. A request that would need one is refused and
//     shown in the readiness.
//  11. A member of a cluster commits nothing before its election. A deposed one ends its life: the
//     process replaces itself and keeps its sockets, so that no connection is refused, and does not
//     wait for a disk that hangs.
//  12. The node has two clocks. Everything that is stored, or compared with a stored time, goes by
//     the reading of package clock (n.now); what others sign or check goes by the wall clock
//     (n.wall). While they differ by more than clock.Tolerance the soft key clock_ok says so, and
//     nothing is refused. On one of at least three members of a cluster, what the reading follows
//     is the wall clock less its difference from the median of all, if that is above 500 ms. The
//     last median stays known while members are silent.
//  13. A directory becomes a node when its init has ended. A node never serves the remains of a
//     killed init, and the next init starts over.
//
// # Members of a cluster
//
// The directory decides whether a node is a member: New completes what a verb or the leader has
// begun there, and then wires the part in the cluster, or none. A node alone has no task, port or
// capture of it. A member runs the phases booting and standby. In standby the committer writes only
// entries of the log, and requests are forwarded. No engine has its state, but those with Stand
// load what reads of hashed or signed content need, again at most every 250 ms if the file has
// changed. Run calls Stand, so it never runs while the engines recover. Once elected the node
// recovers as after a restart. Two cases end a life without a stop: an init or a last leave, which
// drains first, and a deposition, which waits for nothing that may hang. A node that was deposed
// twice within a minute stands for no election for a minute, unless it hears no leader.
//
// # Guests
//
// A guest is any source of data that the operator does not control: a map pack, a tile, a peer, an
// origin, a witness, an uploader, an anonymous reader, and a damaged row of the registry, the
// rewarder, the edge or the index. A guest can make its own request fail, and at worst make its own
// service unready. It cannot stop another service or the boot, and it cannot falsify an answer.
//
//   - Files of guests are opened in the background, by a task of their service, within limits of
//     time and memory.
//   - While another client network waits, one network holds only a share of a queue or of the
//     workers.
//   - A failure counts against a peer, an origin or a witness only if the call had its full
//     timeout.
//   - A service with damaged rows is shut out (service.guest): its routes answer 503 corrupt, and
//     its readiness keys affect only the service. Rows that can be fetched or computed again are
//     dropped. The ledger, the wallet, tokens and the audit chain are not guests: damage ends with
//     exit 65.
//
// TestGuests, TestBadRowHurtsItsServiceAlone and the threat tests check these rules.
//
// # Tasks and queues
//
//   - supervisor: Run itself. It starts, restarts and joins all tasks.
//   - log_writer: 1 task, first to start. It writes the log lines in the ring node.log.
//   - health_gate: 1 task. It samples the probe table every 250 ms and notifies the watchdog.
//   - reloader: 1 background task. It applies configurations.
//   - janitor: 1 background task, one job at a time: expiry, key rotation, snapshots, purges.
//   - flight_recorder: 1 background task. It checks every 250 ms how long the current commit has
//     been running, records while commits take over 250 ms, and saves the trace of one over 2 s.
//   - hello, and the tasks of packages cluster and peer: on a member of a cluster, see package
//     member.
//   - series_recorder: 1 background task. It keeps 12 series of the last hour in memory, with a
//     point every 5 s.
//   - http and admin_http belong to the server, committer to the store. Background tasks are
//     cancelled when the drain begins.
//   - node.lifecycle: watch, also named registry.shutdown_rx and wallet.shutdown_rx; supervisor ->
//     all.
//   - node.readiness: watch; health_gate -> supervisor.
//   - node.cfg: watch; reloader -> all.
//   - registry.cfg_reload_tx: queue, 16, collapse; HTTP and SIGHUP -> reloader.
//   - node.slow_commits: queue, 1, drop newest; committer -> flight_recorder.
//   - node.audit_tx: broadcast, 1024, drop oldest; committer -> HTTP streams, synced rows only.
//
// The whole topology is in testdata/golden/topology.md.
//
// # Lock order
//
// None.
package server
