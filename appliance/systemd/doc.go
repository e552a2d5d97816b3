// Package systemd is what a service manager and the node exchange: readiness, sockets, and the units that ship.
//
// # Invariants
//
//  1. Outside a service manager everything here does nothing and is no error.
//  2. Listeners hands out a socket once, of the kind its name stands for, and leaves nothing for a child process to inherit.
//  3. The units are text made from a few values, none of which can add a line.
//
// # Tasks and queues
//
// None: the node calls Notify from tasks of its own.
//
// # Lock order
//
// none
package systemd
