// Package index is the index's part of the HTTP surface: what names stand for and who serves a content, the same in the words of the Delegated
// Routing standard, and the writes that publish both. New makes it from the engine behind Engine, Client calls it, and a Peer asks another node,
// a ronbox or any server of that standard, on behalf of the engine.
//
// # Invariants
//
//  1. Reads need no token. A write is authorized before it is decoded, and nothing waits in line before that.
//  2. A request that bears hopHeader is answered from this node alone: only the node that a client asks fans out.
//  3. No more than Limits.Inflight requests are inside one route; one more is refused at once.
//  4. A peer is asked over https, or over http on this host; no redirect of it is followed, no more than 1 MiB of it is read, and nothing that it
//     says ends more than its own leg. What it says of itself is not believed: a record counts as verified by its signature alone.
//  5. A lookup that leaves the node takes a token of the rate of its network, and a fresh one without a token of the caller takes ten. The
//     connection of a lookup that is refused for its network's share or rate rests.
//  6. Members of bodies are never renamed. A peer's unknown members are ignored, a client's are refused.
//
// # Tasks and queues
//
// none: a Peer works in its caller's goroutine.
//
// # Lock order
//
// none
package index
