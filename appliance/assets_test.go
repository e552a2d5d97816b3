package appliance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// assets lists what the ledger knows.
func (r *rig) assets() []string {
	r.t.Helper()
	got := r.v1("GET", "/v1/assets", "", "")
	var list wire.AssetList
	must(r.t, json.Unmarshal([]byte(got.body), &list))
	var names []string
	for _, a := range list.Assets {
		names = append(names, a.Asset)
	}
	slices.Sort(names)
	return names
}

// Assets of the configuration are there when the node serves, and those of a reload when it is answered; none goes away.
func TestAssetsOfTheConfiguration(t *testing.T) {
	r, rewrite := reloadable(t)
	if got := r.assets(); !slices.Equal(got, []string{"ron"}) {
		t.Errorf("a fresh node has %v", got)
	}
	rewrite("wallet.assets = [\"gold\", \"silver\"]\n")
	_, err := r.socket().Reload(t.Context())
	must(t, err)
	if got := r.assets(); !slices.Equal(got, []string{"gold", "ron", "silver"}) {
		t.Errorf("after a reload: %v", got)
	}
	seq := r.store.Info().Seq
	must(t, r.declareAssets(t.Context()))
	if r.store.Info().Seq != seq {
		t.Error("what is declared is written again")
	}
	if got := r.v1("POST", "/v1/issue", "k", strings.Replace(issue("bob", "5", 1), "ron", "gold", 1)); got.status != http.StatusOK {
		t.Errorf("the new asset: %d %s", got.status, got.body)
	}
	r.settled()
	r.halt()
	again := start(t, loaded(t, r.cfg))
	if got := again.assets(); !slices.Equal(got, []string{"gold", "ron", "silver"}) {
		t.Errorf("after a restart: %v", got)
	}
	again.halt()
}

// What a reload may change of the money is in force at once.
func TestMoneyReloads(t *testing.T) {
	r, rewrite := reloadable(t)
	rewrite("wallet.max_amount_per_op = \"9\"\nledger.flush_every = \"20ms\"\n")
	_, err := r.socket().Reload(t.Context())
	must(t, err)
	if got := r.v1("POST", "/v1/transfer", "k", pay("alice", "bob", "10", 1)); got.status != http.StatusForbidden || got.problem.Code != "LIMITS_EXCEEDED" {
		t.Errorf("beyond the new limit: %d %s", got.status, got.body)
	}
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "9", 1))
	rewrite("wallet.shards = 2\n")
	if _, err := r.socket().Reload(t.Context()); problem(t, err).Reason != "reload_refused" {
		t.Errorf("a key that needs a restart: %v", err)
	}
	r.halt()
}
