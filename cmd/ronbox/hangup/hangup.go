// Package hangup makes a process that is about to serve ignore SIGHUP until it can reload its
// configuration. Without it a SIGHUP in the first moments of a boot, as of a log rotation, would
// end the process.
//
// # Invariants
//
//  1. It imports only what it needs, because Go runs the init function of a package once those of
//     its imports have run: this one runs before those of most packages of the binary.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package hangup

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Only an init function runs before main, which the init functions of other packages delay by 20 to
// 200 ms. Verbs that do not serve still end when their terminal hangs up.
func init() {
	if slices.ContainsFunc(os.Args, serves) {
		signal.Ignore(syscall.SIGHUP)
	}
}

// serves reports whether an argument is the verb serve or the flag --start of init.
func serves(arg string) bool { return arg == "serve" || arg == "--start" || arg == "--start=true" }
