package pipeline_test

import (
	"testing"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/registrytest"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

// Names of the rig that many tests use.
var (
	alice      = registrytest.Alice
	delta      = registrytest.Delta
	deltaOn    = registrytest.DeltaOn
	digest     = registrytest.Digest
	testID     = registrytest.ID
	mustID     = registrytest.MustID
	newSigners = registrytest.NewSigners
)
