// Package edge serves the HTTP routes of the edge: assets by path or hash with ranges, map tiles
// with their TileJSON and MapLibre style, a page that draws a pack, fills, puts, extracts, sites,
// and the list of stored URLs. New creates the service; the Client of httpapi/wire/edge calls it.
// Objects moves objects between the members of a cluster.
//
// # Invariants
//
//  1. The entity tag of an answer is the BLAKE3 of its representation. A 206 has the tag of the
//     whole object. A tile has the tag of its bytes in the coding that is sent.
//  2. Conditions and ranges are parsed as in RFC 9110, and malformed ones are refused. A range in
//     another unit and a range of a HEAD request are ignored.
//  3. An answer may be cached for ever only if its URL identifies its bytes: the URL contains a
//     hash, or it is a tile URL with the version of the pack.
//  4. A path that contains an escaped slash or backslash is refused.
//  5. Fetched and published content does not run on the origin of the node, and pages of the node
//     load nothing from another origin. A page of a site runs in a sandbox, and so has an origin
//     of its own; its type is one of a list. No content becomes a service worker.
//  6. Every refusal counts once in edge_rejects_total under its reason, including refusals by
//     package httpapi.
//  7. The query of a stored URL may be a credential. GET /edge/keys returns whole URLs, because
//     pin, unpin and rm need them, and so it needs the scope edge.keep, as these do. Problems and
//     log lines contain no query of a URL.
//  8. On the peer port a member that does not lead takes objects of members alone, and only the
//     bytes of the hash. Path, method and the query size are those of earlier releases.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package edge
