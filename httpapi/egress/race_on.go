//go:build race

package egress

import "syscall"

// release tells the race detector that who reads what is written next sees all that was done
// before. It knows the calls of package syscall, of which this one does nothing.
func release() { _, _ = syscall.Write(-1, nil) }
