//go:build !amd64

package b3

const wide = false

// compress8 is never called on this platform.
func compress8(*[8][lanes]uint32, *byte, *[lanes]uint32, *[lanes]uint32) {}
