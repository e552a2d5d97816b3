package main

import (
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"
)

// module is the program whose functions are read; all others are known by a table.
const module = "ronbox"

func main() {
	unitchecker.Main(newLockwait(), newDeterminism())
}

// ours says whether path is a package of the program.
func ours(path string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}
