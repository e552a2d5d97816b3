// Package httpapi is the frame of the node's HTTP surface: one route table behind the listeners of httpapi/front, filled by
// the services, of which this package knows none.
//
// A Service is what an engine adds: its routes, the kinds of its path parameters, its error rules and its words. Package
// httpapi/<service> makes it from the engine behind an interface that it declares itself, and holds the bodies and the client
// calls too. A Route is all there is to a route: the router, the metric labels, the scopes, the limits, the stages a request
// passes, the OpenAPI document and the tests are made from it. A Handler decodes, calls its engine once and responds; what it
// returns as an error becomes a problem by the rules of its service, then by those of problem.go that all services share.
// Statuses are in rules and nowhere else.
//
// # Invariants
//
//  1. The stages of middleware.go are passed in their order; a request that needs a token is authorized before it takes
//     one of a bucket and before a byte of its body is read, and nothing is enqueued before all of it is decoded.
//  2. Every answer of 400 or above is counted in rejected_total once, with one reason of a closed set, carries the
//     correlation id, and repeats no token, no value of a body and no text that was not checked.
//  3. Bypass routes answer from the first bind to the last moment, behind no queue, limiter of a service or drain.
//  4. A path is a route's or no one's: nothing is cleaned, folded or redirected, and a number has one spelling. What is
//     hidden from a peer is answered like a path that nothing has.
//  5. Bodies are bounded as they are sent and, if they are compressed, as they unfold; they are sent within the read
//     timeout, and strict: an unknown, repeated, null or wrongly typed member is refused by name, in JSON as in CBOR.
//  6. Every write to a client has a deadline: the route's and the write timeout, for streams and long answers the write
//     timeout per window. One that passes is counted in io_timeouts_total as the service's write, a body that came too late as
//     its read, a head that did as the node's.
//  7. A stream subscribes before it reads where its log stands and skips what that covers, so it neither misses nor
//     repeats an event unsaid; it ends by itself when the gate closes or the node stops.
//  8. Over the socket a peer may do what the uid map gives it; a token that it shows narrows that. /admin/v1 does not
//     exist on TCP unless configured, profiles never do.
//  9. A request reads the settings once, when it begins; a reload changes them for those that begin later. Rates and
//     slots are the services', and change for all at once. A reload that fails changes nothing.
//  10. A label value never comes from a request.
//  11. What a route answers, the document describes; every answer that a test gets is held against it.
//  12. An answer that an engine gives as bytes is sent as it is, to the byte.
//  13. An export gives each record once and in order, whatever its bus loses, and one that ends early says so. No stream
//     is silent for longer than a ping: an export that follows sends an empty line then.
//  14. Every answer tells browsers to do nothing with it but read it, unless its route is a page; pages of other origins may not even do that, unless
//     they are listed, and none may read the metrics.
//  15. No one network, an address or an IPv6 /64, takes more than its share of what a service's rate lets in, by default
//     half. Reads have no rate by default: slots in flight bound them.
//
// # Tasks and queues
//
// The tasks http and admin_http, of httpapi/front, accept connections; net/http serves each connection on a goroutine of
// its own. There is no queue here: admission is the TrySend of an engine. Each stream and
// each export that follows reads the engine's bus, or the audit bus of the node, from a cursor of its own.
//
// # Lock order
//
// counters: the tables of open streams. They are held over nothing else.
package httpapi
