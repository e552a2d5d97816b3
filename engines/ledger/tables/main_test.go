package tables

import (
	"testing"

	"go.uber.org/goleak"

	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write is a command implemented by a function.
type write func(r store.Reader, w *store.Writes)

func (write) Kind() string { return "ledger.test/1" }

func (c write) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	c(r, w)
	return struct{}{}, nil
}
