// Package follow copies the log of another node, the hub, and checks a public log without a copy.
//
// # Invariants
//
//  1. A follower writes a version only after every version up to a checkpoint of the hub, the
//     checkpoint under the log keys in force at its size, and its consistency with the high-water
//     mark are verified. The mark is written before the versions. A hub that has forked, fallen
//     back or sent bad bytes moves nothing, and follow_ok fails. A hub that does not answer is
//     no fault: follow_ok then fails when the newest checkpoint is older than follow.max_age.
//  2. A follower without a version begins at the horizon of a pruned hub, in one command. It is
//     verified before as the versions are: genesis and the changes of signers each under the set
//     before it, the items of the first complete version under their signed root, all of them in
//     the tree of the checkpoint, and the statement of retention by a log key in force there or
//     later. A follower that has versions never leaves them for a horizon.
//  3. A fault of the hub outlives a restart, and is over only when a round ends well.
//  4. Rounds are at least 100 ms apart, and after faults of the hub 1 s to 30 s.
//
// # Tasks and queues
//
//   - follower, 1: copies the log of the hub, woken by the hub's event stream and at least every
//     30 s; at most 8 requests at a time; ends when the node drains
//   - heard, watch: the newest version that the hub's stream named
//
// # Lock order
//
// None. A fault and the reason of a failed round are published through atomic pointers, which the
// task owns.
package follow
