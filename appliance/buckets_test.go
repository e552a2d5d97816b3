package appliance

import (
	"context"
	"slices"
	"testing"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/store"
)

// A file that was opened without a node records the same buckets as one that a node has had, in the same classes; so does one
// whose services are off.
func TestEveryOpeningKeepsTheBuckets(t *testing.T) {
	cfg, _ := devConfig(t)
	want := recorded(t, cfg)
	hash := stateHash(t, cfg)
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(cfg.Store, store.Options{Path: cfg.Path(DatabaseName), Catalog: catalog})
	Declare(s)
	must(t, s.Open(t.Context()))
	must(t, s.Prepare(t.Context()))
	sup := flow.NewSupervisor(context.WithoutCancel(t.Context()), catalog, flow.Hooks{})
	sup.Start(s.Tasks()...)
	s.CloseLanes()
	sup.Drain("store", patience, patience)
	sup.Close()
	must(t, s.Close())
	if got := recorded(t, cfg); !slices.Equal(got, want) {
		t.Errorf("without a node the file records %v, a node %v", got, want)
	}
	off := loaded(t, cfg)
	off.Registry.Enabled, off.Wallet.Enabled = false, false
	start(t, off).halt()
	if got := recorded(t, cfg); !slices.Equal(got, want) || stateHash(t, cfg) != hash {
		t.Errorf("with services off the file records %v, state %s; was %v, %s", got, stateHash(t, cfg), want, hash)
	}
}

// recorded lists the buckets that a stopped node's file records.
func recorded(t *testing.T, cfg *config.Config) (names []string) {
	t.Helper()
	r, err := store.OpenReader(cfg.Path(DatabaseName))
	must(t, err)
	for _, b := range r.Buckets() {
		names = append(names, b.Name+" "+b.Class.String())
	}
	must(t, r.Close())
	slices.Sort(names)
	return names
}
