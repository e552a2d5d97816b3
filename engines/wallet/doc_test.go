package wallet

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// The package says when its rules are to be looked at next.
func TestReviewIsDated(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^// Its rules are due for review every 90 days, next on (\S+)\.$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("doc.go has no date")
	}
	if _, err := time.Parse(time.DateOnly, string(found[1])); err != nil {
		t.Error(err)
	}
}
