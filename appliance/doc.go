// Package appliance is the node: it wires every package to the others, starts and stops them in order, and knows at each
// moment whether the node may be asked for anything.
//
// # Invariants
//
//  1. New does no I/O, so that the whole topology can be printed without a node.
//  2. The lifecycle is a pure function of phase and event; only Run moves it, and does what it says.
//  3. Nothing that writes runs before the file is locked and checked; nothing is answered but probes before all state is
//     recovered.
//  4. A stop closes from the outside in: gate, services, lanes, sockets, file. Every request let in is answered.
//  5. A poisoned store ends the process without another write to the file.
//  6. No secret is in the database or in a log line; what the node does outside the file leaves a row on the audit chain.
//
// # Tasks and queues
//
// Tasks of the node: supervisor (Run itself), health_gate (samples the probe table each 250 ms), log_writer (empties the
// ring of log lines); http and admin_http are the server's, committer the store's. The cell node.lifecycle, which is
// registry.shutdown_rx too, is written by the supervisor alone; node.readiness is written by the health gate. The whole
// topology is in testdata/golden/topology.md.
//
// # Lock order
//
// none
package appliance
