// Package front accepts connections. It owns the TCP listener and the admin socket, limits
// connections, and determines the peer of each request. It has no routes: every request goes to one
// handler, with the peer in its context.
//
// # Invariants
//
//  1. The open connections of a listener are bounded in total and per address. A further connection
//     is refused and closed at once, without reading from it.
//  2. A probe from health_cidrs gets a slot whatever other clients do. Reserved slots serve one
//     probe each. A silent connection in a reserved slot is evicted. So that a probe's client has
//     time to send, up to 256 newcomers may exist beyond the reserve for 250 ms each. If more
//     arrive in that time, a probe may be refused. A client that sends another request in the
//     reserve loses its slot and is refused after a short delay, for at most 256 clients at a time.
//  3. Answers that net/http itself would send are replaced by problems in the handler's format.
//     Every refusal and time-out before the handler is counted once. A head longer than
//     server.max_header is refused, and so is a folded header line.
//  4. The client's address is taken from a header only if the connection comes from a trusted
//     proxy. If the headers are ambiguous, the address is the zero Addr.
//  5. The settings of a server never change. New settings create a new generation, on the same
//     socket or on another. The previous generation admits the connections that were already made
//     to it, and closes each of its connections after an answer.
//  6. A certificate is replaced by one that was read completely, or not at all. Only the owner can
//     read its key, and the group if the owner is root.
//  7. Over the socket only known peers are admitted. Each carries the uid and gid that the kernel
//     reports.
//  8. A connection made before its listener stops accepting is answered.
//  9. A socket file on which another process answers is never taken over. Nothing but a socket is
//     removed.
//  10. An accept loop waits for connections only. The last loop of a generation admits the
//     connections that were already made.
//  11. With a send window, a client that takes 64 KiB in each window gets the whole answer. A
//     client that stalls for a window is disconnected and counted.
//  12. A request that is refused before its body was read gets its answer: up to 32 MiB of the body
//     are read and discarded, for up to 5 s, on at most 16 connections of a network. Other
//     connections close at once, and all do at shutdown.
//
// # Tasks and queues
//
//   - http (task, 1, with server.acceptors accept loops): TCP connections -> net/http.
//   - admin_http (task, 1): connections of the admin socket -> net/http.
//   - net/http serves each connection on a goroutine of its own: at most max_conns, reserved_conns
//     and 256 newcomers of TCP, and 128 of the socket.
//
// There is no queue. The first handshake after ten seconds checks the certificate files, on its own
// goroutine.
//
// # Lock order
//
// counters: the table of connections, the generations of an endpoint, and the bodies being
// discarded. No other lock is taken while one of them is held.
package front
