// Package wiring makes services of the engines: when one runs, how it is built, drained and
// checked, and which routes it has. It knows no node, only an Env.
//
// # Invariants
//
//  1. Each service is one literal in the file of its name. The type Service documents the order in
//     which the hooks are called, and which of them may fail.
//  2. Only all.go lists the services. Each comes after those that it uses.
//  3. Wire opens and starts nothing. The buckets of a service that is off stay declared.
//  4. A guest with damaged rows is shut out, and the others run. Damage of another service ends the
//     start.
//
// # Tasks and queues
//
//   - fleet.viewer: 1 background task. It computes the view of each HEAD of the registry, and hands
//     it to the engines that use it.
//   - node.copies_tick: on a member that does not lead, the supervisor calls Load of Copies.
//
// # Lock order
//
// None.
package wiring
