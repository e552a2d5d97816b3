package registry_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/registrytest"
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
	r.Stop()
	sound, err := os.ReadFile(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t, r.Path, sound, false)
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
			c := &registrytest.Rig{T: t, Path: path, Config: r.Config, KeyFile: r.KeyFile}
			c.Wire()
			if err := errors.Join(c.Store.Open(c.Ctx()), c.Store.Prepare(c.Ctx())); err != nil {
				t.Fatal(err)
			}
			c.Sup.Start(c.Store.Tasks()...)
			err = c.Engine.Recover(c.Ctx())
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s bit %d: %v", name, bit, err)
			}
			cause := c.Board.Report(tables.Service, "").Causes["registry.stored_rows"]
			derived := row.bucket == tables.PropBucket || row.bucket == tables.PropExpiryBucket
			if derived && (err != nil || !strings.Contains(cause, "reg/prop") || len(c.Engine.Pub().State.Load().Live) > 1) {
				t.Errorf("%s bit %d: %v, %d proposals, %q", name, bit, err, len(c.Engine.Pub().State.Load().Live), cause)
			}
			c.Engine.Head()
			c.Engine.Reload(c.Config)
			c.Engine.Purge()
			_, _ = c.Engine.LatestCheckpoint()
			if err := c.Engine.Close(c.Ctx()); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
			c.Stop()
		}
	}
}
