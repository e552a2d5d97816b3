package period_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
)

// TestFileIsReadBack changes the file after it was written and before it gets its name, as a bad disk
// or another process may: a byte of it, or all. The period is not closed, and no file is left.
func TestFileIsReadBack(t *testing.T) {
	for name, change := range map[string]func(raw []byte) []byte{
		"byte": func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw },
		"frame": func([]byte) []byte {
			z, _ := zstd.NewWriter(nil) // without options it has no error
			defer func() { _ = z.Close() }()
			return z.EncodeAll([]byte("another\n"), nil)
		},
		"more": func(raw []byte) []byte { return append(raw, 0) },
	} {
		t.Run(name, func(t *testing.T) { readsBack(t, change) })
	}
}

func readsBack(t *testing.T, change func(raw []byte) []byte) {
	n := newNode(t, 4)
	n.pay(50)
	dir := t.TempDir()
	var c *period.Closer
	var once sync.Once
	now := func() time.Time { // the closer asks between two slices of the check
		if c != nil && c.State().State == "checking" {
			once.Do(func() {
				path := filepath.Join(dir, record.PeriodFile(1)+".partial")
				raw, err := os.ReadFile(path)
				n.must(err)
				n.must(os.WriteFile(path, change(raw), 0o600))
			})
		}
		return n.clock.Now()
	}
	c = period.NewCloser(period.Config{Dir: dir}, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: now,
	})
	defer n.runs(c)()
	n.clock.Advance(time.Hour)
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now()})
	n.must(err)
	n.await(c, "failed")
	left, _ := os.ReadDir(dir)
	if h := n.horizon(); h.Period != 0 || len(left) > 0 {
		t.Errorf("period %d is closed, and in the folder are %v", h.Period, left)
	}
}
