package checkup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
)

// A node without a schedule is warned of, unless it is a dev node or keeps nothing. One with a schedule
// has the finding about its snapshots.
func TestNoScheduleIsAWarning(t *testing.T) {
	scheduled := host.Finding{Check: "backup", Level: host.OK, Seen: "the last snapshot is new"}
	for doc, tt := range map[string]struct {
		dev, amnesia, standby bool
		every                 time.Duration
		want                  host.Level
	}{
		"a node":                  {want: host.Warn},
		"a dev node":              {dev: true, want: host.OK},
		"in memory":               {amnesia: true, want: host.OK},
		"a member that stands by": {standby: true, want: host.OK},
		"with a schedule":         {every: time.Hour, want: host.OK},
	} {
		cfg := config.Default()
		cfg.Node.DataDir, cfg.Amnesia.Enabled = t.TempDir(), tt.amnesia
		cfg.Store.SnapshotEvery = unit.Duration(tt.every)
		if tt.dev {
			key := cfg.Path(config.SignerName)
			if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f := Backup(cfg, tt.standby, func() host.Finding { return scheduled })
		if f.Level != tt.want || (f.Advice != "") != (tt.want == host.Warn) || (f == scheduled) != (tt.every > 0) {
			t.Errorf("%s: %+v", doc, f)
		}
	}
}
