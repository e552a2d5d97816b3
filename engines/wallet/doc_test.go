package wallet

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// The package says who looks at its rules next, and by when. Overdue: read doc.go against the code, then set the date 90 days ahead.
func TestReviewIsDated(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^// Its rules are due for review by (\S.*) every 90 days, next on (\S+)\.$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("doc.go has no date")
	}
	due, err := time.Parse(time.DateOnly, string(found[2]))
	if err != nil {
		t.Fatal(err)
	}
	if why := overdue(due, time.Now()); why != "" {
		t.Errorf("%s, by %s", why, found[1])
	}
	for late, want := range map[time.Duration]bool{-91 * 24 * time.Hour: true, -90 * 24 * time.Hour: false, 24*time.Hour - 1: false, 24 * time.Hour: true} {
		if got := overdue(due, due.Add(late)) != ""; got != want {
			t.Errorf("at %s after the date it is to be looked at: %t", late, got)
		}
	}
}

// overdue says why a date of review does not hold now, "" if it does.
func overdue(due, now time.Time) string {
	switch {
	case !now.Before(due.AddDate(0, 0, 1)):
		return "the review is overdue"
	case now.Before(due.AddDate(0, 0, -90)):
		return "the date is more than 90 days ahead"
	}
	return ""
}
