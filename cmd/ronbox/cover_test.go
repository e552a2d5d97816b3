package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shown is a command line of a transcript that ended neither as a usage error nor for want of a node.
type shown struct{ human, json bool }

// withoutTranscript are the verbs that no transcript can hold.
var withoutTranscript = map[string]string{
	"serve": "the direction `> start` runs it; it prints its log, not a result",
}

// Every verb is seen at work in a transcript: once as people read it, once with --json.
func TestEveryVerbHasATranscript(t *testing.T) {
	seen := transcribed(t)
	for path := range leafVerbs(t) {
		if withoutTranscript[path] != "" {
			continue
		}
		if s := seen[path]; !s.human || !s.json {
			t.Errorf("testdata has no command line of %q that works: for people %t, with --json %t", path, s.human, s.json)
		}
	}
}

var refusedLine = regexp.MustCompile(`^exit (2|4)$`)

func transcribed(t *testing.T) map[string]shown {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]shown{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split("\n"+string(raw), "\n$ ronbox ")[1:] {
			lines := strings.Split(block, "\n")
			if slices.ContainsFunc(lines, refusedLine.MatchString) {
				continue
			}
			words := commandWords(lines[0])
			cmd, _, err := new(app).tree().Find(words)
			if err != nil {
				continue
			}
			path := strings.TrimPrefix(cmd.CommandPath(), "ronbox ")
			s := out[path]
			if slices.Contains(words, "--json") {
				s.json = true
			} else {
				s.human = true
			}
			out[path] = s
		}
	}
	return out
}
