package appliance

import (
	"testing"

	"ronbox/appliance/config"
)

// Every producer and consumer that a declaration names exists.
func TestTopologyNamesRealTasks(t *testing.T) {
	n, err := New(config.Default(), Build{}, Options{})
	must(t, err)
	if err := n.Catalog().Check(); err != nil {
		t.Error(err)
	}
}
