// Package retain removes old versions by the policy of the configuration.
//
// # Invariants
//
//  1. A row is deleted only after a signed statement of retention is synced, and only if an
//     archived checkpoint covers it.
//  2. HEAD, genesis, changes of signers, tiles and checkpoints are never deleted: a pruned log
//     verifies from genesis.
//  3. Versions go in whole segments, and at least one segment below HEAD stays. The items, the
//     entry and the audit record of the first version kept are stored before.
//  4. A crash between two commands leaves a sound log. The next run continues the sweep.
//
// # Tasks and queues
//
//   - pruner, 1: the only task that deletes versions, in slices with a pause between them
//   - retention_cmd_tx, 8, reject new: checkpointor to pruner; full: the cycle is skipped
//
// # Lock order
//
// None.
package retain
