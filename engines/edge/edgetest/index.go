package edgetest

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/sites"
)

// Index is an index of names and providers.
type Index struct {
	providers []string

	mu        sync.Mutex             // a leaf
	down      bool                   // guarded by mu, as are the next two
	named     map[string]sites.Named // by name
	announced map[b3.Digest]int64    // times
}

func NewIndex(providers ...string) *Index {
	return &Index{providers: providers, named: map[string]sites.Named{}, announced: map[b3.Digest]int64{}}
}

// Set changes what a name stands for.
func (x *Index) Set(name string, n sites.Named) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.named[name] = n
}

// Fail makes every later lookup fail.
func (x *Index) Fail() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.down = true
}

// Count returns how often an object was announced.
func (x *Index) Count(d b3.Digest) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.announced[d]
}

func (x *Index) Manifest(_ context.Context, name string, _ netip.Addr) (sites.Named, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.named[name]
	if !ok || x.down {
		return sites.Named{}, asset.ErrNotFound
	}
	return n, nil
}

func (x *Index) Providers(context.Context, b3.Digest) ([]string, error) { return x.providers, nil }

func (x *Index) Announce(_ context.Context, all []b3.Digest, _ time.Duration) ([]b3.Digest, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range all {
		x.announced[d]++
	}
	return all, nil
}

func (x *Index) Withdraw(_ context.Context, all []b3.Digest) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range all {
		delete(x.announced, d)
	}
	return nil
}
