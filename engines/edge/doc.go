// Package edge serves bytes from where there may be no network: map packs by tile, and assets that were fetched once, from listed hosts, and are
// served from then on by the hash of their bytes.
//
// # Invariants
//
//  1. No lock is held over a wait, a file or the network: state that several tasks change is behind a ranked lock for a few lines, what requests
//     read is behind an atomic pointer, or in the file.
//  2. The task cas_writer alone names, moves and removes objects, and sends the commands that change their rows. An object has its name before it has a
//     row, both on the disk, and loses its row first: no crash leaves a row without the bytes that it names.
//  3. Every queue has a bound. A full queue refuses a fill at once. An accepted fill is dropped by a shutdown, or when all its callers have left
//     before a worker has taken it, unless a POST began it. While edge.allow names several hosts, one of them holds at most half of work_tx and
//     half of the workers.
//  4. Every wait has a deadline: a request for a fill 5 s in all, a try of a fill 5 s, or 60 s where a POST has begun it, at most 3 tries, after a
//     time-out, 503 or 504 alone.
//  5. A fill belongs to no request: one is under way for each URL. Once a worker has taken it, it goes on when all callers have left.
//  6. From the phase Draining on no fill is begun; those that run have 3 s, and are aborted then.
//  7. No byte is served of an object up to 1 MiB that was not hashed when it was read from the disk, nor of a larger one that this process has not
//     hashed or written. One that is not what its name says is set aside, and in live mode fetched anew. Each edge.scrub.every all that is stored
//     is read again.
//  8. Only what a request asks for is fetched, from hosts of edge.allow, at public addresses or those of edge.allow_private. What has no strong
//     ETag is not stored, and nothing is stored but whole.
//  9. The objects together, those that are being written too, stay below edge.cas.max_bytes, and leave edge.cas.min_free of the disk and
//     a headroom above it; for that the ones used least recently leave, whether a fill or another file takes the space. When that does not help,
//     fills are refused and hits go on.
//  10. The breaker of a host counts failed connections, whole tries without an answer, and 502 to 504 of at least 3 paths within a minute. Any
//     5xx is remembered against its path, for 5 s and for GETs. Queues and deadlines of the edge never count against a host.
//  11. In amnesia no file is opened for writing: packs are served, fills are refused.
//  12. A row of edge/paths or edge/blobs that does not read stops neither the start, nor a task, nor a request for another row: it is dropped,
//     logged and counted, the rows that it concerns are made to agree, and the file of an object without a row is set aside.
//  13. A pack can fail itself only. The boot opens none; opening one, reading a tile and checking one each have a deadline,
//     and nothing of a pack in memory is as large as its file says. A file that replaces a pack serves once it is verified.
//
// # Tasks and queues
//
// Tasks:
//   - worker, 8: fetches an object, hashes it on the way and hands it over
//   - cas_writer, 1: installs objects in bursts that share a sync, makes room, sets objects aside, drops rows that do not read
//   - scrubber, 1: reads all that is stored again, slowly
//   - pack_scanner, 1: lists the folder of packs
//   - pack_opener, 1: opens new packs, 2 s each
//   - verifier, 2: verifies packs, the smallest first
//   - metrics, 1: each 100 ms what readiness depends on, each second the free space of the disk; events to the log
//
// Queues:
//   - work_tx, 512, reject new: one lane per host, HTTP to worker
//   - ready_tx: the fills of work_tx that a worker may begin; it is never full
//   - cas_tx, 64: in which workers wait for room and others do not, to cas_writer
//   - verify_tx, 32, reject new: scans that HTTP and the reloader ask for, to pack_scanner
//   - packs, watch: the packs, which the tasks of the packs change and follow
//   - events_tx, broadcast, 1024, drop oldest
//
// Ticks are metrics_tick and scrub_tick; missed ones merge. shutdown_rx is the node's lifecycle. The caches hide set buffers that drop when full.
// A first reader of a large object hashes it in the flight hash, two objects at a time.
//
// # Lock order
//
// flights (flow's, one shard at a time) before counters; neither is taken under another of its own rank. Counters are: the tokens of the rate,
// the room of the content store, and the lanes of work_tx. The mutexes of faultyPaths and of sums are
// leaves, held for a few lines.
package edge
