// Package edge serves map tiles from pack files, and assets that it fetched from allowed hosts, so
// that both are available without a network. Assets are stored by the hash of their bytes.
//
// Its rules are due for review by the maintainers of ronbox every 90 days, next on 2027-02-22.
//
// Terms: a pack is a map file in PMTiles or MBTiles format. An object is a file of the content
// store, named by the BLAKE3 of its bytes. A URL leads to an object by its row in edge/paths. A
// fill fetches the object of a URL and installs it. A partial is the beginning of an object after
// an interrupted fetch. A pinned URL is not evicted. An object without a URL of a host is stored
// under the pseudo URL b3:<hex>. A site is a set of files under a name: the index leads from the
// name to a manifest, and the manifest to the objects of the files. The fleet is the set of nodes
// that a registry names; a placement is an item of the registry that names content for the nodes
// of a region.
//
// # Invariants
//
//  1. No lock is held during a wait, file I/O or network I/O. State that several tasks change is
//     guarded by a ranked lock for a few lines; state that requests read is an atomic pointer or a
//     row of the file.
//  2. Only package content names, moves and removes objects and sends the commands that change
//     their rows, and after a crash every row has its object.
//  3. Every queue is bounded, and a full queue refuses a fill at once. An accepted fill is dropped
//     only by a shutdown, or if all its callers leave before a worker takes it and no POST began
//     it. If edge.allow names several hosts, one host occupies at most as many places of work_tx,
//     and as many workers, as it leaves free. So one host occupies at most half, and two slow hosts
//     leave a third.
//  4. Every wait has a deadline: 5 s for a request that needs a fill, and 5 s for each try of the
//     fill. If a POST began the fill, a try ends after edge.fill.idle without a byte, and after an
//     hour at most. A fill has at most 3 tries, and repeats a try only after a time-out, a 503 or a
//     504.
//  5. At most one fill runs for each URL. After a worker has taken it, it continues even if all
//     its callers leave.
//  6. No fill begins after the phase Draining has begun. Running fills have 3 s and are then
//     aborted.
//  7. Every served byte was hashed before, as package content describes. An object with another
//     hash than its name is set aside and, in live mode, fetched again. All stored content is read
//     again once per edge.scrub.every.
//  8. The edge fetches only objects that a request asks for, from hosts of edge.allow, at public
//     addresses or those of edge.allow_private. It does not store an object without an ETag of the
//     kind that edge.fill.etag names, an incomplete object, or one that its host keeps private by
//     Cache-Control private or no-store, a cookie or Vary: *. A try that resumes an object asks for
//     the missing part under the ETag of the first part; the bytes of two objects never mix. In
//     live mode the host of a stale object is asked about it again, as package fill describes; a
//     request waits for that at most edge.cache.wait, and only if the host demands it.
//  9. Objects, those being written and partials together stay within the room that package content
//     describes. Partials are evicted first, then unpinned objects, for a fill or for the growth of
//     other files. If that would not free enough, fills are refused; hits are still served.
//  10. The breaker of a host counts failed connections, tries without an answer, and answers of 502
//     to 504 for at least 3 paths within a minute. Any 5xx is remembered for 5 s and answers later
//     GETs of its path. Queues and deadlines of the edge never count against a host.
//  11. In amnesia no file is opened for writing: packs are served, fills are refused.
//  12. A damaged row of edge/paths, edge/blobs or edge/keys fails neither the start, nor a task,
//     nor a request for another row.
//  13. A bad pack affects only itself, as package pack describes.
//  14. A pin lasts through eviction, damage, restart and restore. It ends when Keep removes it, or
//     when a refresh makes its object so large that the pinned bytes would exceed
//     edge.cas.max_pinned; the fill then reports that the URL is no longer pinned. No pin and no
//     refresh takes the pinned bytes beyond edge.cas.max_pinned, or the pinned URLs beyond half of
//     edge.cas.max_urls. Every row of edge/paths has a row in edge/keys.
//  15. No log line, event or text of a FillError contains the query of a URL, because the query of
//     a signed URL is a credential. Whole URLs are returned by Keys, Keep, Fill and Verify only;
//     their routes need edge.keep, edge.fill or admin.
//  16. Without Deps.Fleet no node is asked, and the tasks, queues and rows are those of a node
//     without a fleet. edge.mode rules hosts, not nodes.
//  17. Fetch believes the bytes of a node by their BLAKE3 alone, as package near describes. Room
//     for an object of unknown length is reserved as its bytes arrive.
//  18. The breaker of a node counts what that of a host counts, and more, as package near
//     describes.
//  19. A request without the scope edge.fetch causes a search only for an object of a manifest
//     that this process has opened.
//  20. A placement is refused before its first object is fetched if it does not fit, and its pins
//     neither end nor outlast a pin of a caller, as package placed describes.
//  21. An object that was put is named by the hash of the bytes that were written, and its row and
//     its pin are one command. A put that is refused or cut off leaves no file, no row and no
//     reserved room. Every object, of whatever sender, enters the content store by an intake, as
//     package intake describes.
//  22. A path of a site is served with the object that the current manifest of the name lists, as
//     package sites describes, or not at all.
//  23. An object that is announced is announced again until it is removed, unpinned or lost, as
//     package announce describes.
//  24. With FleetConfig.Signer the edge counts the bytes that it received from each other node,
//     after the hash of the object was verified, as package meter describes.
//  25. With Deps.Members an answer to a put counts the members that have the object. Its rows are
//     committed before it is copied, so that a member that leads later keeps the file. A row
//     without a file is a miss only after the other members were asked, and the bytes of a member
//     are believed by their BLAKE3 alone. Verify drops no such row while a member does not answer.
//  26. After Stand, and before Recover, the edge answers reads from the file and the folders, and
//     writes, fetches and verifies nothing.
//
// # Tasks and queues
//
// Tasks (name, count), beside those of packages content, fill, announce, pack, placed and meter:
//   - metrics, 1: samples readiness each 100 ms, or each second while nothing is fetched, and the
//     free space of the disk each second; logs events
//
// Queues (name, capacity, policy, producer -> consumer), beside those of packages content, fill,
// near and pack:
//   - events_tx, 1024, broadcast, drop oldest: events, all -> metrics
//
// The ticker metrics_tick merges missed ticks. shutdown_rx is the lifecycle of the node. Caches
// have set buffers that drop when full.
//
// # Lock order
//
// flights (of flow, one shard at a time) before counters. No two locks of the same rank are held
// together. Counters are the tokens of the rate limit, the room of the content store and the lanes
// of work_tx. The mutex of partials is a leaf.
package edge
