// Package front is where connections come in: the TCP listener and the admin socket, who may connect, how many, and who they are.
//
// It knows nothing of routes. What it lets in it hands to one handler, with the peer in the request's context.
//
// # Invariants
//
//  1. The open connections of a listener are bounded, in all and by address; one more is told so and closed, nothing of it
//     is read and nobody waits for it.
//  2. A probe from health_cidrs finds a place whatever others do: reserved ones serve one probe each, and whoever holds
//     one and asks for nothing makes room. So that a probe's client has the time to ask, 256 newcomers may stand beyond. Who
//     asks there for anything else gives the place back and is refused after a moment, 256 at a time.
//  3. What net/http refuses on its own leaves as a problem of the handler's form. All that is refused or given up before
//     the handler is counted, once.
//  4. The client's address is another's word only behind a trusted proxy, and the zero Addr where that word is not clear.
//  5. Settings of a server never change under it: new ones are a new generation, on the same socket or on another. The one
//     before lets in who has connected to it and ends every connection with an answer.
//  6. A certificate is replaced by one that has been read whole, or not at all; its key can be read by nobody but its owner,
//     and those whom root lends it to.
//  7. Over the socket only peers that the node knows are let in, and each carries the uid and gid the kernel names.
//  8. Who has connected when a listener shuts its door is still answered.
//  9. A socket file that somebody answers on is never taken over, and nothing is removed that is not a socket.
//  10. The accept loop waits for nothing but connections.
//
// # Tasks and queues
//
// The tasks http and admin_http accept connections; net/http serves each connection on a goroutine of its own, at most
// max_conns, reserved_conns and 256 newcomers of TCP, and 128 of the socket. There is no queue here. The files of the
// certificate are looked at by the first handshake after ten seconds, on its own goroutine.
//
// # Lock order
//
// counters: the book of places, and the generations of an endpoint. Neither is held over anything.
package front
