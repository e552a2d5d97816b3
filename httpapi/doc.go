// Package httpapi is the node's HTTP surface: one route table behind one TCP listener and the admin socket.
//
// A row of the table is all there is to a route: the router, the metric labels, the scopes, the limits, the stages a
// request passes and the tests are made from it. A handler decodes, calls an engine once and responds; what it returns
// as an error becomes a problem in problem.go, the only file that knows statuses.
//
// # Invariants
//
//  1. The stages of middleware.go are passed in their order; a request that needs a token is judged before a byte of its
//     body is read, and nothing is enqueued before all of it is decoded.
//  2. Every answer of 400 or above is counted in rejected_total once, with one reason of a closed set, and carries the
//     correlation id.
//  3. Bypass routes answer from the first bind to the last moment, behind no queue, limiter of a service or drain.
//  4. A path is a row's or no one's: nothing is cleaned, folded or redirected, and a number has one spelling.
//  5. Bodies are bounded, sent within the read timeout, and strict: an unknown, repeated, null or wrongly typed member is
//     refused by name.
//  6. Every write to a client has a deadline: the route's and the write timeout, for streams the write timeout per frame.
//  7. A stream subscribes before it reads HEAD and skips what HEAD covers, so it neither misses nor repeats a version; it
//     ends by itself when the gate closes or the node stops.
//  8. Over the socket only the node's own uid and root are let in; /admin/v1 does not exist on TCP unless configured.
//  9. Who has connected when the server shuts its door is still answered.
//  10. A label value never comes from a request.
//
// # Tasks and queues
//
// The tasks http and admin_http accept connections; net/http serves each connection on a goroutine of its own, at most
// max_conns and 128. There is no queue here: admission is the TrySend of an engine. Each stream reads the engine's bus
// from a cursor of its own.
//
// # Lock order
//
// counters: the book of open streams. It is held over nothing else.
package httpapi
