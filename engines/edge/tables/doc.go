// Package tables has the rows of the content store of the edge, and the commands that change them.
//
// A URL leads to an object by its row in edge/paths, and has a row in edge/keys, which holds its
// pin. An object with a file has a row in edge/blobs, which counts its URLs. edge/announced lists
// the objects that the node announces.
//
// # Invariants
//
//  1. Every URL of edge/paths is listed in edge/keys, and leads to an object with a row. A row of
//     edge/keys without a URL in edge/paths is that of a pinned URL whose object was lost.
//  2. The row of an object is removed with its last URL. The effect of a command names the objects
//     that no longer have a row, and the exact change of the counts.
//  3. No command takes the pins beyond the caps that it carries.
//  4. A repair drops rows that do not read, makes the others consistent, and may be interrupted
//     between its parts.
//
// # Tasks and queues
//
// None. The task cas_writer of package edge sends the commands.
//
// # Lock order
//
// None.
package tables
