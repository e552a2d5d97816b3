// Package httpapi is the framework of the node's HTTP surface: the route table behind the listeners
// of httpapi/front. It knows no service.
//
// A [Service] is the contribution of an engine: its routes, the kinds of its path parameters, and
// its error rules. Package httpapi/<service> builds it on an interface to the engine that it
// declares itself. That package also holds the bodies and the client calls. A [Route] describes a
// route completely: the router, the metric labels, the scopes, the limits, the stages of a request,
// the OpenAPI document and the tests are derived from it. A [Handler] decodes the request, calls
// its engine once and responds. An error that it returns is converted to a problem by the rules of
// its service, or else by the shared rules in rules.go. Only rules contain statuses.
//
// # Invariants
//
//  1. A request passes the stages of middleware.go in order. If it needs a token, it is authorized
//     before it takes a token of a bucket and before its body is read. Nothing is enqueued before
//     the request is decoded.
//  2. Every answer with status 400 or above is counted once in rejected_total, with a reason from a
//     closed set. It carries the correlation id, and contains no token, no value of a body and no
//     unchecked text.
//  3. Bypass routes answer from the first bind to the end of the process. No queue, service limit
//     or drain delays or refuses them.
//  4. A path belongs to one route or to none. Paths are not cleaned, folded or redirected, and a
//     number has one spelling. A route that is hidden from a peer answers like a path without a
//     route.
//  5. Bodies are bounded before and after decompression, by the node and more tightly by a service,
//     must arrive within the read timeout, and are decoded strictly: an unknown, repeated, null or
//     wrongly typed member is refused by name, malformed CBOR by its offset.
//  6. Every write to a client has a deadline: that of the route plus the write timeout, or the
//     write timeout per window for streams and long answers. A passed deadline is counted in
//     io_timeouts_total: as a write of the service, as a read of the service for a body, and as a
//     read of the node for a head. A forwarded request for which no connection to the leader was
//     made in time counts as a connect of the service.
//  7. A stream subscribes before it reads the position of its log, and skips events that the log
//     already covers. So it neither misses nor repeats an event without saying so. It ends when the
//     gate closes or the node stops, and within 5 s after its client has lost the permission.
//  8. Over the socket a peer has the permissions of the uid map. A token that it sends restricts
//     them. /admin/v1 does not exist on TCP unless configured, and profiles never do.
//  9. A request reads the settings once, at its start, and a stream every 5 s. A reload applies to
//     later requests. Rates and slots belong to the service and change for all requests. A reload
//     that fails changes nothing.
//  10. A label value never comes from a request.
//  11. The OpenAPI document describes every answer. The tests check each answer that they get
//     against it.
//  12. An answer that an engine returns as bytes is sent unchanged.
//  13. An export delivers each record once and in order, whatever its bus loses. A truncated export
//     says so. No stream is silent for longer than the ping interval; an export that follows its
//     log sends an empty line then.
//  14. Every answer forbids browsers to do anything but read it, unless its route is a page. Pages
//     of other origins may not read it unless they are listed or the route is shared, and never
//     the metrics. Pages of any origin may read all answers of a shared route, never with
//     credentials.
//  15. A network (an IPv4 address or an IPv6 /64) gets at most its share of a service's rate, by
//     default half. Reads have no rate by default; the slots of running requests bound them.
//  16. In a cluster, a node that does not lead forwards every request to the leader, unless its
//     route is local or its copy has the answer. It never sends a write twice: if the connection
//     breaks, the outcome is unknown. A forwarded request is not forwarded again. The leader counts
//     its refusal. Such a node is as ready as the leader, which it asks at most once a second.
//  17. The leader answers a read, or refuses a write, only after a quorum has confirmed that it
//     leads, unless the content cannot change. A node alone does neither, and allocates nothing for
//     it.
//  18. A node believes what another node says about a client only on the peer port, with a verified
//     certificate. Such headers of clients are ignored and not forwarded.
//  19. A node that does not lead answers public routes only from its copy. Content that may have
//     changed has Ronbox-Age, and is answered only while no leader is known.
//
// # Tasks and queues
//
//   - http, admin_http (tasks of httpapi/front): accept connections. net/http serves each
//     connection on a goroutine of its own.
//   - Streams and following exports read the engine's bus, or the node's audit bus, each with its
//     own cursor.
//
// There is no queue. Requests are admitted by TrySend of an engine's queue.
//
// # Lock order
//
// counters: the tables of open streams, and the last answers of the leader about its readiness. No
// other lock is taken while one is held. The calls of the leader's /readyz have the lock of a
// flow.Flight.
package httpapi
