package checkup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/store"
)

// Doctor compares the clock with the file of a stopped node.
func TestDoctorOfAStoppedNode(t *testing.T) {
	cfg := config.Default()
	cfg.Node.DataDir, cfg.Server.Bind = t.TempDir(), "127.0.0.1:0"
	id, err := store.NewIdentity(time.Now().Add(30 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(cfg.Path(config.DatabaseName), id); err != nil {
		t.Fatal(err)
	}
	found := Of(t.Context(), cfg, time.Time{}, false)
	i := slices.IndexFunc(found, func(f host.Finding) bool { return f.Check == "node_clock" })
	if i < 0 || found[i].Level != host.Warn || !strings.Contains(found[i].Seen, "behind the node's clock") {
		t.Errorf("%+v", found)
	}
}
