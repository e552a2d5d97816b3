// Package process describes the life of the process of a node: the phases and the events that
// change them, the exit codes with the advice to the operator, the process that holds the port, and
// what the service manager is told.
//
// # Invariants
//
//  1. The lifecycle is a pure function of phase and event. It performs no action.
//  2. An exit code names the first failure. An aborted task only turns a clean stop into
//     ExitAborted.
//  3. Every error that ends a start has an exit code and advice. An unknown error is a bug.
//
// # Tasks and queues
//
// None: Run of package server asks for the next action and performs it.
//
// # Lock order
//
// None.
package process
