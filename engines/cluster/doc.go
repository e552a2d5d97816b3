// Package cluster makes a node a member of a cluster.
package cluster
