// Package checkup checks a node and its machine: the findings of the doctor, and what a start
// demands of the machine.
//
// # Invariants
//
//  1. A check writes nothing. That of a stopped node opens its file only for reading.
//  2. A finding that is not OK carries advice.
//  3. In amnesia mode a start goes on only if no memory of the process can reach a disk.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package checkup
