package peers

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index/name"
)

// Names in metrics and in the catalogue.
const (
	service = "index"
	janitor = "breaker_janitor"
)

// Every is the period at which the breakers are stepped. Without peers it is a second.
const Every = 250 * time.Millisecond

// Deps holds what a Table uses. Metrics may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	// Rule returns the rule of the breakers, and a channel that is closed when it may have changed.
	Rule func() (flow.BreakerRule, <-chan struct{})
}

// Table holds the current peers. Its methods are safe for concurrent use.
type Table struct {
	catalog *flow.Catalog
	metrics *obs.Metrics
	log     hclog.Logger
	rule    func() (flow.BreakerRule, <-chan struct{})
	tick    *flow.Ticker

	configured []*Peer // those of the configuration
	set        atomic.Pointer[Set]
}

// New returns the peers of the configuration, in its order. It starts nothing.
func New(configured []name.Peer, d Deps) *Table {
	t := &Table{catalog: d.Catalog, metrics: d.Metrics, log: d.Log, rule: d.Rule}
	t.tick = flow.Every(d.Catalog, flow.Spec{
		Service:   service,
		Name:      "breaker_tick",
		Consumers: []string{janitor},
		Doc:       "a step of each breaker",
	}, Every)
	for _, p := range configured {
		t.configured = append(t.configured, t.newPeer(p))
	}
	t.set.Store(&Set{Peers: t.configured})
	return t
}

// Task returns the task that steps the breakers.
func (t *Table) Task() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       janitor,
		Restart:    flow.Always,
		Background: true,
		Doc:        "sole stepper of the breakers",
		Run:        t.run,
	}
}

// Load returns the peers and owners as of now.
func (t *Table) Load() *Set { return t.set.Load() }

// Ready returns an error if the breakers of all peers are open.
func (t *Table) Ready() error {
	peers := t.Load().Peers
	for _, p := range peers {
		if p.Breaker.State() != flow.BreakerOpen {
			return nil
		}
	}
	if len(peers) == 0 {
		return nil
	}
	return errors.New("breakers of all peers are open")
}

// run steps the breakers. No other task changes their state.
func (t *Table) run(ctx context.Context) error {
	defer t.tick.Stop()
	for {
		rule, changed := t.rule()
		peers := t.Load().Peers
		if len(peers) == 0 {
			t.tick.Rest()
		} else {
			t.tick.Wake()
		}
		for _, p := range peers {
			if p.rule != rule {
				p.rule = rule
				p.Breaker.Reload(rule)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-t.tick.C():
			for _, p := range t.Load().Peers {
				t.step(p)
			}
		}
	}
}

// step steps one breaker to now and publishes a change of its state.
func (t *Table) step(p *Peer) {
	before := p.Breaker.State()
	after := p.Breaker.Step(time.Now())
	if before == after {
		return
	}
	p.state[before](0)
	p.state[after](1)
	if after == flow.BreakerOpen {
		t.log.Warn("breaker_open", "target", p.Target())
	} else {
		t.log.Info("breaker_"+after.String(), "target", p.Target())
	}
}
