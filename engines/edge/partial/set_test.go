package partial

import (
	"fmt"
	"testing"
	"time"

	"ronbox/engines/edge/intake"
)

// A set is bounded by its bytes and its number, and drops what has expired.
func TestPartialsAreBounded(t *testing.T) {
	t.Parallel()
	s, now := New(100), time.Now()
	put := func(url string, size int64, after time.Duration) (left []*Partial) {
		return s.Keep(url, &Partial{Intake: intake.Intake{Size: size}}, now.Add(after))
	}
	if left := put("large", 101, 0); len(left) != 1 || len(s.all) != 0 {
		t.Errorf("one that is too large: %d left", len(left))
	}
	put("a", 40, 0)
	put("b", 40, time.Second)
	if left := put("c", 50, 2*time.Second); len(left) != 1 || left[0].Size != 40 || s.all["a"] != nil || s.sum != 90 {
		t.Errorf("%d left, %d bytes", len(left), s.sum)
	}
	for i := range 2 * mostPartials {
		put(fmt.Sprint(i), 0, time.Duration(3+i)*time.Second)
	}
	if len(s.all) != mostPartials || s.sum != 0 {
		t.Errorf("%d are kept, %d bytes", len(s.all), s.sum)
	}
	if left := s.Expired(now.Add(time.Hour)); len(left) != mostPartials || len(s.all) != 0 || s.Shed() != nil {
		t.Errorf("%d expired, %d left", len(left), len(s.all))
	}
}
