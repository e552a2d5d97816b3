// Package cluster is the HTTP surface of the cluster: its status, and its operations for the
// operator. New builds it from an Engine, which this package declares. The bodies are in
// httpapi/wire/cluster. Forwarding requests to the leader is a stage of package httpapi.
//
// # Invariants
//
//  1. Every node answers the status itself, without asking the leader.
//  2. A node alone has the same routes. Those that need a cluster refuse.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package cluster
