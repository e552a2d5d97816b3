// Package initdir makes a directory the directory of a node: its secret, configuration, database,
// unit files and map packs. The first state in the file is made by the parts of a node, which the
// caller lends.
//
// # Invariants
//
//  1. A directory becomes a node when its init has ended: the mark init.unfinished goes last.
//  2. One init owns a directory, by a lock on the mark. Others are refused and remove no file.
//  3. An init that fails leaves the directory as it was. One that was killed leaves the mark, and
//     the next init removes the remains, unless the directory holds a file that no init makes.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package initdir
