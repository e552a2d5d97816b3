package cluster

import (
	"testing"
	"testing/synctest"
)

// One server with rows becomes three without copying anything but its file, and all have the same
// rows.
func TestOneBecomesThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.three()
		w.leader().mustPut("second", "2")
		w.equal()
		w.end()
	})
}
