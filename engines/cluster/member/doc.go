// Package member does the file work of becoming, being and ceasing to be a member of a cluster:
// init, join, leave, rejoin and recover, the tokens that let a node join, and the requests between
// nodes that these verbs need.
//
// # Invariants
//
//  1. A verb that is killed at any step is completed or undone by running it again or by
//     [Dir.Finish] at the next boot. Its mark, a file in <data>/cluster, is written before its
//     first change and removed after its last one.
//  2. A file with a membership belongs to the identity in <data>/cluster, unless a mark is there.
//  3. A token is redeemed for one key of a node. Only its hash is stored.
//  4. A bundle of secrets goes only over ronbox-peer/1, to a node whose certificate was issued less
//     than a day ago and that was not admitted since.
//  5. A fetched file gets the name of the database only after its length and hash match, and after
//     its membership has Origin "install".
//  6. Files that become the database lie beside it. A symbolic link to the database stays.
//  7. A recovered node has another cluster id, server id and authority than before. No node of the
//     old cluster exchanges an entry or a request with it.
//  8. The address of a member changes only after the leader has reached that member there.
//  9. At most 64 tokens are open and at most 64 issued certificates wait for their admission.
//
// # Tasks and queues
//
// None. Handlers run on the tasks of package peer.
//
// # Lock order
//
// A verb holds the flock of the directory <data>/cluster, then that of the file for single
// transactions.
package member
