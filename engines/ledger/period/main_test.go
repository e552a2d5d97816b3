package period_test

import (
	"testing"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}
