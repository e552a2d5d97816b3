// Package history reads an archive: which moments of which nodes it has, whether it is whole, and
// what may go. It restores the file of a node at a moment. It needs no node and no local state.
//
// # Invariants
//
//  1. The name of an object is believed only if its header says the same. Names that are not those
//     of an archive are ignored and counted.
//  2. A base counts only if all of its parts are there.
//  3. A restored file gets the name of a snapshot after its rows were verified. Restore writes over
//     nothing.
//  4. Restore and Verify name the object that is damaged or missing. A moment before it can still
//     be restored.
//  5. Prune keeps the two newest complete bases of a node and everything after them, whatever its
//     age.
//  6. What is newest and what is old is told by the order of commands and by the times of the
//     target, not by stamps of a node. A time that is ahead of now says nothing.
//  7. Files of closed periods that RestorePeriods writes follow one another. It picks none of
//     several histories. Prune keeps all of them.
//  8. Restore wants an archive of one node, or a line: it never picks one of several nodes.
//  9. A prune deletes bases, and then log objects, from the oldest on. It may do so, or have been
//     killed in the middle, while the archive is read: what it has deleted is no damage. An object
//     that is missing while one of its kind before it is there is damage.
//
// # Tasks and queues
//
// None. Restore and Verify read up to eight objects at once and join these calls before they go on.
//
// # Lock order
//
// None.
package history
