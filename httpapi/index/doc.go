// Package index serves the HTTP routes of the index: names, providers of content, the same lookups
// by the Delegated Routing standard, and the writes that publish names and providers. New builds
// the routes over an Engine, Client calls them, and a Peer asks another node for the engine. The
// other node is a ronbox or any server of that standard.
//
// # Invariants
//
//  1. Reads need no token, or the scope index.read if index.public_reads is false. A write is
//     authorized before it is decoded and before it takes a place in a queue.
//  2. A request with hopHeader is answered from this node alone. Only the node that a client asks
//     fans out.
//  3. At most Limits.Inflight requests are inside one route. The next one is refused at once.
//  4. A peer is asked over https, or over http on loopback. Its redirects are not followed, at most
//     1 MiB of its answer is read, and a bad answer ends only its own call. A record counts as
//     verified only if its signature was checked.
//  5. A lookup that leaves the node takes a token of the rate of its network. A fresh lookup
//     without a bearer token takes ten. The connection of a lookup that was refused for the share
//     or the rate of its network is held back. A network that asked for at most six of them in a
//     minute, in a block (IPv4 /24, IPv6 /56) that asked for at most 24, is quiet: its searches
//     have a reserve.
//  6. A token of index.peer_tokens is sent to its peer alone. It appears in no error, log or
//     answer. A reload that cannot read one of the files of peers changes nothing.
//  7. Members of bodies are never renamed. Unknown members are ignored in answers of peers and
//     refused in requests of clients.
//
// # Tasks and queues
//
// None. A Peer works in the goroutine of its caller.
//
// # Lock order
//
// None.
package index
