//go:build !race

package egress

// release does nothing: the race detector does not run.
func release() {}
