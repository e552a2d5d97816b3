// Package slab keeps many values of one type. Values without pointers lie outside of Go's heap: the
// garbage collector neither scans nor counts them, so a gigabyte of them makes no collection longer
// and allows no gigabyte of garbage beside it.
//
// # Invariants
//
//  1. A value stays at its address until it is freed. Its place is then used again, so a pointer
//     to it may show another value.
//  2. Values with pointers are in the heap, and under the race detector all.
//  3. Memory outside of the heap is unmapped once its Slab is unreachable. Until then it only
//     grows.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None: one goroutine calls Add and Free. Others may call At with the number of a value that was
// added before.
package slab
