// Package node provides the verbs that create, run and inspect a node, those for its configuration,
// and the verb that explains codes.
//
// # Invariants
//
//  1. A running node can be reached even if its configuration has a fault.
//  2. A bundle contains no secret: no token, no key, no row of the database.
//  3. Each reason of the API, each exit code and each readiness key has an explanation.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package node
