package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
)

// Bounds of testdata/pay, a program that pays a node, and of the clients. A client that links an
// engine or the server exceeds them many times over.
const (
	mostPackages = 40        // outside the standard library
	mostForeign  = 26        // of other modules, without what Go's own library has of them
	mostBytes    = 8_000_000 // of the stripped program
)

// notStandard is a template of go list.
const notStandard = "{{if not .Standard}}{{.ImportPath}}{{end}}"

// A program that pays imports neither an engine nor the server, and is small.
func TestAClientIsSmall(t *testing.T) {
	for _, dir := range []string{"testdata/pay", "httpapi/wire/wallet", "httpapi/wire/ledger", "httpapi/wire/node"} {
		out := runGo(t, "list", "-deps", "-f", notStandard, "./"+dir)
		deps := strings.Fields(out)
		if len(deps) > mostPackages {
			t.Errorf("%s pulls %d packages, want at most %d:\n%s", dir, len(deps), mostPackages, out)
		}
		for _, dep := range deps {
			name, engine := strings.CutPrefix(dep, "ronbox/engines/")
			engine = engine && !strings.Contains(name, "/") // below an engine are the leaves that it shares
			if engine || strings.HasPrefix(dep, "ronbox/store") {
				t.Errorf("%s depends on %s", dir, dep)
			}
		}
	}
	hosttest.Sources(t, "../../testdata/pay")
	bin := filepath.Join(t.TempDir(), "pay")
	runGo(t, "build", "-ldflags", "-s -w", "-o", bin, "./testdata/pay")
	info, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("testdata/pay has %d bytes, want at most %d", info.Size(), mostBytes)
	}
}

// A program that calls any service links neither bbolt nor many packages of others.
func TestClientsLinkNoEngine(t *testing.T) {
	dirs, err := filepath.Glob("../../httpapi/wire/*/doc.go")
	if err != nil || len(dirs) < 7 {
		t.Fatalf("%v, %v", dirs, err)
	}
	for _, doc := range dirs {
		dir := "./httpapi/wire/" + filepath.Base(filepath.Dir(doc))
		others := 0
		for dep := range strings.FieldsSeq(runGo(t, "list", "-deps", "-f", notStandard, dir)) {
			if dep == bbolt {
				t.Errorf("%s links %s", dir, dep)
			}
			if !strings.HasPrefix(dep, "ronbox/") {
				others++
			}
		}
		if others > mostForeign {
			t.Errorf("%s links %d packages of others, want at most %d", dir, others, mostForeign)
		}
	}
}

// runGo runs the go command in the root of the module, without cgo, and returns its output.
func runGo(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", args[0], err)
	}
	return string(out)
}
