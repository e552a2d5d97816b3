// Package seal signs the log: checkpoints, the mark outside the database (the high-water mark), and
// the cosignatures of witnesses. Its fork guard refuses signatures and commits while the file may
// be older than its log.
//
// # Invariants
//
//  1. A checkpoint is signed only of a durable HEAD whose tree extends the last checkpoint and the
//     mark. The mark moves before the checkpoint is stored, and the checkpoint is stored before it
//     is published.
//  2. An answer of a witness is stored only if it is a cosignature of that checkpoint by the key
//     that the signer set names. A witness delays no commit and no checkpoint.
//  3. Every objection is stored, shown and counted. If the signed witness policy cannot be met
//     without the witnesses that object, the fork guard trips. It stays tripped over restarts until
//     a catch-up brings the missing versions or an operator adopts the log.
//  4. A follower signs nothing and has no guard.
//
// # Tasks and queues
//
//   - checkpointor, 1: signs checkpoints and stores sets of items; ends with the pipeline
//   - witness, 1: shows checkpoints to witnesses, at most four at a time; ends when the node
//     drains
//   - checkpoint_cmd, 8, reject new: HTTP to checkpointor
//   - signing, 1: signatures, adoptions of the log and objections, one at a time
//   - archived, watch: checkpointor to witness
//   - checkpoints, watch: the latest checkpoint
//
// The tick is checkpoint_tick; missed ticks merge.
//
// # Lock order
//
// None. The guard, the objections and the key are published through atomic pointers.
package seal
