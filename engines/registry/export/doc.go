// Package export writes a log into a directory that anyone can check and serve, and reads it back. Checkpoint, tiles and entries lie as the
// C2SP tlog-tiles layout has them; beside them payload/ (what was signed), audit/ (the chain of decisions), epoch/ (the signer sets) and
// log.json (where it ends). Of a pruned log there are also retention (the statement), snapshot (the items of its first whole version) and kept/ (genesis
// and the changes of signers that lie before it).
//
// # Invariants
//
//  1. An export holds exactly what its checkpoint covers.
//  2. log.json is written last: a directory without it is no export.
//  3. A reader trusts nothing: what it gives is for rverify to check.
//
// # Tasks and queues
//
// none: callers drive it.
//
// # Lock order
//
// none: a Log serves one goroutine at a time.
package export
