package appliance

import (
	"os"
	"strconv"
	"testing"

	"ronbox/httpapi/wire"
)

// The audit chain says who asked for what an operator can ask for, and under which correlation id.
func TestAuditNamesWhoAsked(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if _, err := r.socket().Snapshot(t.Context(), wire.SnapshotRequest{Dir: t.TempDir()}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.socket().Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}}); err != nil {
		t.Fatal(err)
	}
	must(t, r.socket().Drain(t.Context(), "test"))
	r.halt()
	uid, asked := strconv.Itoa(os.Getuid()), map[string]bool{}
	for _, e := range auditEvents(t, cfg) {
		asked[e.Event] = e.UID == uid && e.CorrID != ""
	}
	for _, name := range []string{"db.snapshot", "auth.token_minted", "node.drain"} {
		if !asked[name] {
			t.Errorf("%s does not say who asked", name)
		}
	}
}
