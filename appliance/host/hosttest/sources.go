package hosttest

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Sources lets Go's test cache depend on all files below dirs: it does not see what a program reads
// that a test starts, such as a compiler.
func Sources(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }) // opens each folder
		if err != nil {
			t.Fatal(err)
		}
	}
}
