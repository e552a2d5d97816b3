package edge_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
)

func TestMain(m *testing.M) {
	if text, child := os.LookupEnv(childEnv); child {
		os.Exit(runChild(text))
	}
	hosttest.InMemory()
	if !hosttest.UnderRace() {
		_ = flag.Set("test.parallel", "8") // they wait for time-outs more than they compute
	}
	goleak.VerifyTestMain(m)
}
