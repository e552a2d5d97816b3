package registry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// A start on a file with a flipped bit in any bucket ends at once: the registry serves, or Recover
// returns store.ErrCorrupt. Either way the engine can be asked, reloaded and closed. A proposal
// with damaged rows is left out and named, and the registry serves on.
func TestStartOnDamagedRows(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("it is the work of one goroutine: `make test` runs it")
	}
	r, _ := full(t)
	r.stop()
	sound, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t, r.path, sound, false)
	path := filepath.Join(t.TempDir(), "ronbox.db")
	for n, row := range all {
		edge := n == 0 || n == len(all)-1 || all[n-1].bucket != row.bucket || all[n+1].bucket != row.bucket
		if !edge && row.bucket != tables.MetaBucket && row.bucket != tables.PropBucket {
			continue
		}
		if testing.Short() && !edge && n%5 > 0 {
			continue
		}
		for _, bit := range []int{3, 8*len(row.key) + (1009*n)%max(1, 8*len(row.value))} {
			if bit/8 >= len(row.key)+len(row.value) {
				continue
			}
			writeFile(t, path, sound)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range row.places {
				if _, err := f.WriteAt([]byte{sound[at+bit/8] ^ 1<<(bit%8)}, int64(at+bit/8)); err != nil {
					t.Fatal(err)
				}
			}
			_ = f.Close()
			name := row.bucket.Name + " " + strings.ToValidUTF8(string(row.key), "?")
			c := &rig{t: t, path: path, cfg: r.cfg, keyFile: r.keyFile}
			c.wire()
			if err := errors.Join(c.store.Open(c.ctx()), c.store.Prepare(c.ctx())); err != nil {
				t.Fatal(err)
			}
			c.sup.Start(c.store.Tasks()...)
			err = c.e.Recover(c.ctx())
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s bit %d: %v", name, bit, err)
			}
			cause := c.board.Report(service, "").Causes["registry.stored_rows"]
			derived := row.bucket == tables.PropBucket || row.bucket == tables.PropExpiryBucket
			if derived && (err != nil || !strings.Contains(cause, "reg/prop") || len(c.e.pub.State.Load().Live) > 1) {
				t.Errorf("%s bit %d: %v, %d proposals, %q", name, bit, err, len(c.e.pub.State.Load().Live), cause)
			}
			c.e.Head()
			c.e.Reload(c.cfg)
			c.e.Purge()
			_, _ = c.e.LatestCheckpoint()
			if err := c.e.Close(c.ctx()); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
			c.stop()
		}
	}
}
