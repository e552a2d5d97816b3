package above

import "testing"

func TestHeld(t *testing.T) {
	var x top
	x.mu.Lock()
	x.h.Hand()
}
