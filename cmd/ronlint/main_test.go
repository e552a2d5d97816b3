package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/txtar"
)

// asTool is the environment variable that makes the test binary run as the vet tool.
const asTool = "RONLINT_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// The findings of each analyzer in the archive of its name are exactly the expected ones.
func TestAnalyzers(t *testing.T) {
	for a, packages := range map[*analysis.Analyzer][]string{
		newLockwait():    {"ronbox/held", "ronbox/below", "ronbox/above", "ronbox/excused", "ronbox/leaves"},
		newDeterminism(): {"ronbox/store", "ronbox/spices", "ronbox/cooks"},
		newRawchan():     {"ronbox/appliance/flow", "ronbox/engine"},
		newWidth():       {"ronbox/wide"},
		newDiscard():     {"ronbox/drops"},
		newLeftover():    {"ronbox/left"},
	} {
		t.Run(a.Name, func(t *testing.T) {
			dir := t.TempDir()
			unpack(t, a.Name, filepath.Join(dir, "src"))
			analysistest.Run(t, dir, a, packages...)
		})
	}
}

// A finding that depends on a lower package is reported in the package above it, through go vet and
// its fact files.
func TestPlantedBelow(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vet := exec.Command("go", "vet", "-vettool="+self, "./...")
	vet.Dir = t.TempDir()
	unpack(t, "planted", vet.Dir)
	vet.Env = append(os.Environ(), asTool+"=1", "GOWORK=off", "GOFLAGS=-trimpath", "GOPROXY=off")
	out, err := vet.CombinedOutput()
	if err == nil {
		t.Fatalf("nothing was found\n%s", out)
	}
	// With -trimpath go vet prints full paths. Cached output has the paths of an earlier run.
	out = regexp.MustCompile(`(?m)^\S*/above/`).ReplaceAll(out, []byte("above/"))
	for _, want := range []string{
		"above/above.go:18:2: t.mu (since above.go:16) is held over a call of Hander.Hand, which reaches a channel " +
			"send (below.go:5)",
		"above/above.go:22:17: Apply reaches a call of maps.Keys (below.go:8) by between.Last",
		"above/above.go:25:13: a channel that no catalogue declares: use appliance/flow",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("not found: %s", want)
		}
	}
	if n := strings.Count("\n"+string(out), "\nabove/"); n != 3 {
		t.Errorf("%d findings, want 3:\n%s", n, out)
	}
}

// unpack writes the files of the archive testdata/name.txtar below dir.
func unpack(t *testing.T, name, dir string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
