// Package edge implements the command group edge: packs on a node and in files, fills, the stored
// URLs, and the files and sites that are published.
//
// # Invariants
//
//  1. A verb that names a pack file reads that file and calls no node.
//  2. A list of fills may be repeated: a URL that is stored is not fetched again.
//  3. A name leads to a manifest only after the node has all objects of the manifest.
//  4. When all running publishes have ended, the objects of every site that was published are
//     pinned: an unpin looks for names that were set meanwhile, and a publish pins its objects
//     again after its name is set.
//
// # Tasks and queues
//
// None; a flow.Fan runs the fills of a list and the puts of a site concurrently.
//
// # Lock order
//
// None.
package edge
