// Package line shares the places of a queue and its workers among the networks that ask.
//
// # Invariants
//
//  1. Each pushed job is taken, evicted, withdrawn or flushed exactly once. The jobs of one network
//     keep their order.
//  2. While another network waits, one network holds at most a quarter of the places, and a worker
//     takes a job of the network with the fewest workers.
//  3. Quiet jobs have a quarter of the places and the first free workers, up to a quarter of them,
//     before all others.
//
// # Tasks and queues
//
// None. The owner of the queue sends a turn for each job, and its workers take the jobs.
//
// # Lock order
//
// Line.mu is a leaf.
package line
