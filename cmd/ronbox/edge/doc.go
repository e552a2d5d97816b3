// Package edge implements the command group edge: packs on a node and in files, fills, and the
// stored URLs.
//
// # Invariants
//
//  1. A verb that names a pack file reads that file and calls no node.
//  2. A list of fills may be repeated: a URL that is stored is not fetched again.
//
// # Tasks and queues
//
// None; a flow.Fan runs the fills of a list concurrently.
//
// # Lock order
//
// None.
package edge
