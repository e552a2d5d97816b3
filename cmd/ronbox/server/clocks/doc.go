// Package clocks compares the clock of a node with that of its machine and with those of the other
// members of its cluster.
//
// # Invariants
//
//  1. Everything that is stored, or compared with a stored time, goes by Reading. What others sign
//     or check goes by Wall.
//  2. On one of at least three members of a cluster, what the reading follows is the wall clock
//     less its difference from the median of all, if that is above cluster.MostSkew. The last
//     median stays known while members are silent.
//  3. A step of the wall clock is counted once, and a change of the state is logged once.
//
// # Tasks and queues
//
// None: the health gate of the node calls Watch.
//
// # Lock order
//
// None.
package clocks
