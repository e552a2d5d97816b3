//go:build !race

package slab

// outside is whether values may lie outside of the heap, where the race detector does not look.
const outside = true
