package views

import (
	"testing"
	"time"
)

func TestRetryOfReads(t *testing.T) {
	for n := range 10 {
		if d := readDelay(n); d < 50*time.Millisecond || d > 2*time.Second {
			t.Errorf("delay %d = %s", n, d)
		}
	}
}
