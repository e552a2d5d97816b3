// Package front accepts connections: it owns the TCP listener and the admin socket, decides which clients may connect and
// how many, and names the peer of each request.
//
// It knows nothing of routes: every request goes to one handler, with the peer in its context.
//
// # Invariants
//
//  1. The open connections of a listener are bounded, in all and by address; one more is refused and closed, unread and
//     without waiting.
//  2. A probe from health_cidrs finds a slot whatever other clients do: reserved ones serve one probe each, and a holder that
//     sends nothing is evicted. So that a probe's client has the time to ask, 256 newcomers may stand beyond for 250 ms each;
//     where more come in this time a probe is refused as well. A client that asks there for anything else loses its slot and
//     is refused after a moment, 256 at a time.
//  3. The answers that net/http gives on its own leave as problems of the handler's form. Every refusal and time-out before
//     the handler is counted, once. A head longer than server.max_header is refused, and one with a folded line.
//  4. The client's address is taken from a header only behind a trusted proxy, and is the zero Addr where that is not clear.
//  5. Settings of a server never change under it: new ones are a new generation, on the same socket or on another. The one
//     before admits the connections already made to it and ends every connection with an answer.
//  6. A certificate is replaced by one that has been read whole, or not at all; its key can be read by its owner only, and
//     by the group that root lends it to.
//  7. Over the socket only peers that the node knows are admitted, and each carries the uid and gid the kernel names.
//  8. A connection made before its listener stops accepting is still answered.
//  9. A socket file on which another process answers is never taken over, and nothing is removed that is not a socket.
//  10. An accept loop waits for nothing but connections. Of several the last to end takes in the connections already made.
//  11. A client that takes 64 KiB of an answer with a send window in each window gets the whole of it; one that stalls for a
//     window is cut, and counted.
//  12. A request that is refused before its body was read gets its answer: up to 32 MiB of the body are read and dropped, for
//     5 s, on at most 16 connections of a network. A connection beyond that ends at once, and so do all at shutdown.
//
// # Tasks and queues
//
// The tasks http and admin_http accept connections, http in server.acceptors loops that it joins; net/http serves each
// connection on a goroutine of its own, at most max_conns, reserved_conns and 256 newcomers of TCP, and 128 of the socket.
// There is no queue here. The files of the certificate are checked by the first handshake after ten seconds, on its own
// goroutine.
//
// # Lock order
//
// counters: the table of connections, the generations of an endpoint, and the bodies being dropped. None is held over anything.
package front
