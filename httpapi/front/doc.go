// Package front is where connections come in: the TCP listener and the admin socket, who may connect, how many, and who they are.
//
// It knows nothing of routes. What it lets in it hands to one handler, with the peer in the request's context.
//
// # Invariants
//
//  1. The open connections of a listener are bounded; one more is told so and closed, and nothing of it is read.
//  2. Over the socket only peers that the node knows are let in, and each carries the uid and gid the kernel names.
//  3. Who has connected when a listener shuts its door is still answered.
//  4. A socket file that somebody answers on is never taken over, and nothing is removed that is not a socket.
//
// # Tasks and queues
//
// The tasks http and admin_http accept connections; net/http serves each connection on a goroutine of its own, at most
// max_conns and 128. There is no queue here.
//
// # Lock order
//
// none
package front
