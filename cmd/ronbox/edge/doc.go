// Package edge holds the verbs of the edge: packs on a node and in files, and the fills that warm it.
//
// # Invariants
//
//  1. A verb that names a pack file reads that file and asks no node.
//  2. A list of fills can be given again: what is there already is not fetched a second time.
//
// # Tasks and queues
//
// none; the fills of a list run side by side in a flow.Fan.
//
// # Lock order
//
// none
package edge
