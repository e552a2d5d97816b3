// Package cluster provides the verbs that make a node a member of a cluster, show the cluster, and
// end the membership.
//
// # Invariants
//
//  1. init and leave ask a running node. They change the files of a stopped node directly, as
//     rejoin and recover always do.
//  2. The result of init and leave is printed after the running node has started again, so that the
//     next verb meets a node in its new state.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package cluster
