// Package hosttest looks up the tools that some tests need, the settings of a test run in the
// environment, and free addresses. It reads the traces of strace.
//
// # Invariants
//
//  1. A test whose tool is missing is skipped, and the message names the Debian package. If
//     RONBOX_TOOLS is set, as in CI, the test fails.
//  2. A seed is logged at once, and again at the end of a failed test, because there may be much
//     output in between.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package hosttest

import (
	"os"
	"os/exec"
	"testing"
)

// Tool returns the path of a program, which the Debian package deb holds, or ends the test if it is
// not installed.
func Tool(t testing.TB, name, deb string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("RONBOX_TOOLS") != "":
		t.Fatalf("%s is missing: install Debian's package %s", name, deb)
	default:
		t.Skipf("%s is missing: Debian's package %s has it", name, deb)
	}
	return path
}
