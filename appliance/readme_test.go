package appliance

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const (
	readme        = "../README.md"
	topologyBegin = "<!-- topology:begin -->\n"
	topologyEnd   = "<!-- topology:end -->"
)

// The picture in README.md is the one the program prints.
func TestReadmeGolden(t *testing.T) {
	_, picture := topology(t)
	want := "```mermaid\n" + strings.TrimSpace(picture) + "\n```\n"
	text, err := os.ReadFile(readme)
	must(t, err)
	before, rest, begun := bytes.Cut(text, []byte(topologyBegin))
	block, after, ended := bytes.Cut(rest, []byte(topologyEnd))
	if !begun || !ended {
		t.Fatalf("%s has no block between %q and %q", readme, topologyBegin, topologyEnd)
	}
	if *update {
		must(t, os.WriteFile(readme, []byte(string(before)+topologyBegin+want+topologyEnd+string(after)), 0o644))
		return
	}
	if string(block) != want {
		t.Errorf("the picture in %s differs from the declarations: run the test with -update", readme)
	}
}
