// Package hosttest finds what some tests need of the machine: its tools, and what the environment says of a run.
//
// # Invariants
//
//  1. A test whose tool is missing is skipped with the name of Debian's package. Where RONBOX_TOOLS is set, as in CI, it fails.
//  2. A seed is logged at once, and again at the end of a test that failed, since a long one has said much in between.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package hosttest

import (
	"os"
	"os/exec"
	"testing"
)

// Tool returns the path of a program, which the Debian package deb holds, or ends the test if it is not installed.
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
