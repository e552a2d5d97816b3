package unit

import (
	"strings"
	"unicode/utf8"
)

// Shell returns a command line of a shell, with quotes around the words that need some.
func Shell(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsFunc(w, special) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// special reports whether a shell may not take r as it is.
func special(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-:=", r)
}

// Clip shortens s to at most most bytes, at a character boundary, and appends "…" if it does.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Nearest returns the known name closest to name, or "" if none is close enough. At most a third of
// its letters may differ, but one always may.
func Nearest(name string, known []string) string {
	best, bound := "", len(name)/3+1
	for _, k := range known {
		if len(k)-len(name) > bound || len(name)-len(k) > bound {
			continue // more letters are missing than may differ
		}
		if d := distance(name, k); d <= bound {
			best, bound = k, d-1 // a later one must be closer
		}
	}
	return best
}

// distance returns the number of single-letter edits between a and b.
func distance(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] { // most paths share much, and the table costs a product
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diag
			if a[i] != b[j] {
				change++
			}
			diag = row[j+1]
			row[j+1] = min(change, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
