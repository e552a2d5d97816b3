package unit

// Nearest returns the known name closest to name, or "" if none is close enough: at most a third of the name, and at least one
// letter, may differ.
func Nearest(name string, known []string) string {
	best, bound := "", len(name)/3+1
	for _, k := range known {
		if len(k)-len(name) > bound || len(name)-len(k) > bound {
			continue // so many letters are missing
		}
		if d := distance(name, k); d <= bound && (best == "" || d < distance(name, best)) {
			best = k
		}
	}
	return best
}

// distance returns the number of single-letter edits between a and b.
func distance(a, b string) int {
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
