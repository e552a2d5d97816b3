package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever the order in which groups make holds, end or fail, and searches run, the bound is never
// above the expiry of a hold that a reader sees.
func TestSoonestIsALowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := soonest{running: never, missed: never}
		var running, published, open []int64 // holds that are visible are in published or open
		least := func(holds []int64) int64 {
			first := int64(never)
			for _, expires := range holds {
				first = min(first, expires)
			}
			return first
		}
		found := int64(-1) // by the search under way; -1: there is none
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				expires := rapid.Int64Range(1, 20).Draw(t, "expires")
				s.made(expires)
				running = append(running, expires)
			case 2: // the layers are published before the end of the group
				published, running = append(published, running...), nil
			case 3:
				open, published, running = append(open, published...), nil, nil
				s.ended()
			case 4:
				if found < 0 {
					s.search()
					found = min(least(open), least(published)) // the search may see the latter or not
					if rapid.Bool().Draw(t, "misses") {
						found = least(open)
					}
				}
			case 5:
				if found >= 0 {
					s.found(found)
					found = -1
				}
			}
			if first := min(least(open), least(published)); s.at.Load() > first {
				t.Fatalf("the bound is %d, a hold expires at %d", s.at.Load(), first)
			}
		}
	})
}
