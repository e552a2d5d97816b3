// Package appliance is the node: it wires every package to the others, starts and stops them in order, applies new configurations, and
// knows at each moment whether the node may be asked for anything.
//
// # How to add an engine
//
// Three folders of its name: engines/x, its domain; httpapi/x, its routes, handlers, errors, bodies and client calls; cmd/ronbox/x, its
// verbs. One file here, x.go, with one service literal: when it runs, how it is built, drained and checked, and its part of the HTTP
// surface; the type service says in which order the node calls what, and which call may fail. Then four lines:
//
//   - services in service.go lists it, behind those that it uses;
//   - config.Config has its section, and config's ronbox.toml its keys;
//   - the root command has its verbs;
//   - the table of layers in cmd/ronlint/layout_test.go has its folders.
//
// Its tasks say themselves whether they are vital and which lanes of the store they commit in (flow.Task). Run the golden tests with
// -update and read the diff.
//
// # Invariants
//
//  1. New opens and starts nothing, so that the whole topology can be printed without a node.
//  2. The lifecycle is a pure function of phase and event; only Run moves it, and takes its actions.
//  3. Nothing is written before the file is locked and checked, no socket is bound before that; nothing is answered but
//     probes before all state is recovered.
//  4. A stop closes from the outside in: gate, services, lanes, sockets, file. Every request let in is answered. Services
//     drain side by side, but for the ledger, which writes what has changed once the wallet's workers are gone.
//  5. A poisoned store ends the process without another write to the file.
//  6. No secret is in the database or in a log line; an action outside the file leaves a row on the audit chain.
//  7. A reload is all or nothing: every part prepares, then all swap; if one cannot, those before it are undone in reverse
//     order. A configuration counts one version, once.
//  8. A service that is off has no task and no route, and its rows stay in the file. The ledger is never off.
//  9. Assets of the configuration are declared before the gate opens and with each reload; none is ever taken back.
//  10. In memory mode no path is opened for writing; a request for it is refused, and that shows.
//  11. A directory is a node once its init has ended: the remains of a killed one are never served, and the next begins anew.
//
// # Guests
//
// A guest is any source of data that the operator does not control: a map pack, a tile, a peer, an origin, a witness, an uploader, an anonymous
// reader, and a damaged row of the registry, the rewarder, the edge or the index. The rule for all services: a guest can make its own
// request fail, and at worst its own service unready. It cannot stop another service or the boot, and it cannot make an answer untrue.
//
//   - Files of guests are opened beside the boot, by a task of their service, within a budget of time and memory.
//   - While another client network waits, one network holds a share of a queue or of the workers, never all of them.
//   - A failure counts against a peer, an origin or a witness only if it had its fair time.
//   - A service whose rows are damaged is shut out (service.guest): its routes answer 503 corrupt, and its readiness keys count for it alone.
//     Rows that can be fetched or computed again are dropped. The ledger, the wallet, tokens and the audit chain are not guests: exit 65.
//
// TestGuests, TestBadRowHurtsItsServiceAlone and the threat tests hold this.
//
// # Tasks and queues
//
// Tasks of the node: supervisor (Run itself), log_writer (empties the ring of log lines, first to start), health_gate
// (samples the probe table each 250 ms, feeds the watchdog), reloader, janitor (expiry, key rotation, scheduled snapshots,
// purges; one job at a time), flight_recorder (looks each 250 ms how long the commit that runs has taken, records from one of
// 250 ms until a minute after the last such look, and keeps what the scheduler did around a commit over 2 s); the last three
// are cancelled as soon as the node drains. http and admin_http are the server's, committer the store's.
//
// Cells: node.lifecycle, which is registry.shutdown_rx and wallet.shutdown_rx too, is written by the supervisor alone, node.readiness by the
// health gate, node.cfg by the reloader. Queues: registry.cfg_reload_tx (collapse) into the reloader, node.slow_commits
// from the committer. The broadcast node.audit_tx shows audit rows once they are synced. The whole topology is in
// testdata/golden/topology.md.
//
// # Lock order
//
// none
package appliance
