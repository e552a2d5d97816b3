package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each reason of a failure of a verb is one word, as those of the node are.
func TestReasonsOfVerbsAreWords(t *testing.T) {
	given := regexp.MustCompile(`(?:Fail\(|Outcome\{)\s*(?:[\w.]+|Code: [\w.]+),\s*(?:Reason: )?"([^"]*)"`)
	word, found := regexp.MustCompile(`^[a-z0-9_]+$`), 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if path == "../server" {
			return fs.SkipDir // no verbs
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range given.FindAllSubmatch(source, -1) {
			found++
			if !word.Match(m[1]) {
				t.Errorf("%s: %s is no word", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 100 {
		t.Errorf("only %d reasons were found: %v", found, err)
	}
}
