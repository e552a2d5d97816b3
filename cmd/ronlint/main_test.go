package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asTool has the test binary be the tool, for go vet.
const asTool = "RONLINT_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// What is planted in a package below is found above it, through go vet and the files it keeps facts in.
func TestPlantedBelow(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vet := exec.Command("go", "vet", "-vettool="+self, "./...")
	vet.Dir = filepath.Join("testdata", "planted")
	vet.Env = append(os.Environ(), asTool+"=1", "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	out, err := vet.CombinedOutput()
	if err == nil {
		t.Fatalf("nothing was found\n%s", out)
	}
	for _, want := range []string{
		"above/above.go:18:2: t.mu (since above.go:16) is held over a call of Hander.Hand, which reaches a channel send (below.go:5)",
		"above/above.go:22:17: Apply reaches a call of maps.Keys (below.go:8) by between.Last",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("not found: %s", want)
		}
	}
	if n := strings.Count("\n"+string(out), "\nabove/"); n != 2 {
		t.Errorf("%d findings, want 2:\n%s", n, out)
	}
}
