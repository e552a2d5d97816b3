// Package export writes a log into a directory that anyone can check and serve, and reads it back.
// Checkpoint, tiles and entries have the C2SP tlog-tiles layout. Beside them are payload/ (the
// signed payloads), audit/ (the audit chain), epoch/ (the signer sets) and log.json (the index). A
// pruned log also has retention (the statement), snapshot (the items of its first complete version)
// and kept/ (genesis and the changes of signers before it).
//
// # Invariants
//
//  1. An export holds exactly the versions that its checkpoint covers.
//  2. log.json is written last: a directory without it is not an export.
//  3. A reader checks no signature or hash: rverify checks the bytes that it returns.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None: a Log serves one goroutine at a time.
package export
