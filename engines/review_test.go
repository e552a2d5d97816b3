package engines

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// reviewLine is the line of a doc.go that names the owner of its rules and the day of their next
// review.
var reviewLine = regexp.MustCompile(`(?m)^// Its rules are due for review by (\S.*) every 90 days, next on (\S+)\.$`)

// Each engine names the owner of its rules and the day of their next review. Overdue: read doc.go
// against the code, then set the date 90 days ahead.
func TestReviewsAreDated(t *testing.T) {
	for _, engine := range []string{"edge", "index", "ledger", "registry", "rewarder", "wallet"} {
		text, err := os.ReadFile(filepath.Join(engine, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := reviewLine.FindAllSubmatch(text, -1)
		if len(found) != 1 {
			t.Errorf("%s/doc.go has %d lines like %s, want 1", engine, len(found), reviewLine)
			continue
		}
		due, err := time.Parse(time.DateOnly, string(found[0][2]))
		if err != nil {
			t.Errorf("%s/doc.go: %v", engine, err)
		} else if why := overdue(due, time.Now()); why != "" {
			t.Errorf("%s/doc.go: %s, by %s", engine, why, found[0][1])
		}
	}
}

func TestOverdue(t *testing.T) {
	due := time.Date(2027, 2, 22, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for late, want := range map[time.Duration]bool{-91 * day: true, -90 * day: false, day - 1: false, day: true} {
		if got := overdue(due, due.Add(late)) != ""; got != want {
			t.Errorf("at %s after the date it is to be looked at: %t", late, got)
		}
	}
}

// overdue returns the reason for which a date of review does not hold now, or "".
func overdue(due, now time.Time) string {
	switch {
	case !now.Before(due.AddDate(0, 0, 1)):
		return "the review is overdue"
	case now.Before(due.AddDate(0, 0, -90)):
		return "the date is more than 90 days ahead"
	}
	return ""
}
