package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the layers into ARCHITECTURE.md")

var (
	guidePath  = regexp.MustCompile("`((?:appliance|store|engines|httpapi|cmd|testdata)/[^` ]*)`")
	layerBlock = regexp.MustCompile("(?s)```text\n.*?```")
)

// The guides name only files and folders that exist, and the layers as they are. A name in capitals
// and the engine x stand for any.
func TestGuides(t *testing.T) {
	const architecture = "../../.github/ARCHITECTURE.md"
	for _, guide := range []string{"../../.github/CONTRIBUTING.md", architecture} {
		raw, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range guidePath.FindAllStringSubmatch(string(raw), -1) {
			path := found[1]
			if strings.HasSuffix(path, "/x") || strings.ToLower(path) != path {
				continue
			}
			if _, err := os.Stat("../../" + path); err != nil {
				t.Errorf("%s names %s: %v", guide, path, err)
			}
		}
	}
	raw, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	want := layerBlock.ReplaceAllLiteral(raw, []byte("```text\n"+layerText()+"```"))
	if string(want) == string(raw) {
		return
	}
	if !*update {
		t.Fatal("ARCHITECTURE.md has other layers: go test ./cmd/ronlint -run TestGuides -args -update")
	}
	if err := os.WriteFile(architecture, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// layerText writes the table of layers, a row of it in one or more lines.
func layerText() string {
	const width = 118
	var out strings.Builder
	for _, row := range layers {
		line := "-"
		for _, p := range row {
			if len(line)+1+len(p) > width {
				out.WriteString(line + "\n")
				line = " "
			}
			line += " " + p
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}
