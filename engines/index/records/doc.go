// Package records holds the names and the providers that are published to this node, and the
// records of names that other nodes own: it is all that writes rows of the index.
//
// # Invariants
//
//  1. A change is synced, then its key is outdated, and then it is answered and published.
//  2. WaitSynced returns after the rows of a read are synced. A page of names visits at most
//     maxWalk rows.
//  3. Only records that were verified are queued. Of records by owners at most maxHeld are kept.
//  4. A damaged row of a name is reported until it is forgotten. A damaged row of a provider or of
//     an expiry is skipped and removed.
//
// # Tasks and queues
//
// Tasks (name, count):
//   - renewer, 1 (only with a fleet): keeps the records of owners, and every hour has the owners
//     asked again. It is the only writer of index/held.
//
// The queue records_tx, 4096, drops new records. The watch synced is moved by the committer. The
// ticker renew_tick merges missed ticks. The cache janitor of the index calls Expire and Repair.
//
// # Lock order
//
// damage.mu is a leaf.
package records
