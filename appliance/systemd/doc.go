// Package systemd implements the interface to the service manager: readiness, sockets, and the
// units that ship with ronbox.
//
// # Invariants
//
//  1. Without a service manager every function is a no-op and returns no error.
//  2. Listeners returns each socket once, and only sockets of the kind that their name requires. A
//     child process inherits none.
//  3. Again passes on sockets that stay bound: no connection is refused between two runs.
//  4. Units are made from a few values. No value can add a line.
//
// # Tasks and queues
//
// None. The node calls Notify from its own tasks.
//
// # Lock order
//
// None.
package systemd
