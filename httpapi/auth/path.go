package auth

import (
	"fmt"
	"path"
	"strings"
)

// parsePath reads "/p", which is that path, or "/p/*", which is all that lies below it.
func parsePath(s string) (string, error) {
	bare, below := strings.CutSuffix(s, "/*")
	whole := below && bare == "" // "/*" is every path
	if strings.Contains(bare, "*") || below && bare == "/" || !whole && !cleanPath(bare) {
		return "", fmt.Errorf("%q is not a path such as /p or /p/*", s)
	}
	return s, nil
}

// cleanPath says whether p has no empty, "." or ".." segments; a path that has could mean another one further in.
func cleanPath(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p
}
