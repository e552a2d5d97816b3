package edge

import (
	"context"
	"time"

	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/pack"
)

// Names and bounds.
const (
	KeyPrefix   = keyPrefix
	KeyStore    = keyStore
	KeyIntact   = keyIntact
	TaskMetrics = taskMetrics
	EventRing   = eventRing
)

// Types of fields.
type (
	Asking    = func(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error
	Rehashing = func(ctx context.Context, each func(pack.Info, error)) error
)

// The parts of an engine.
func (e *Engine) Content() *content.Store                              { return e.content }
func (e *Engine) Fills() *fill.Filler                                  { return e.fills }
func (e *Engine) Meter() *meter.Meter                                  { return e.meter }
func (e *Engine) Events() *flow.Broadcast[asset.Event]                 { return e.events }
func (e *Engine) Flights() *flow.Flight[string, struct{}, fill.Filled] { return e.flights }
func (e *Engine) Absent() *cache.Cache[string, fill.Answer]            { return e.absent }
func (e *Engine) Origins() *origin.Hosts                               { return e.origins.Load() }
func (e *Engine) LogEvents(sub *flow.Subscription[asset.Event])        { e.logEvents(sub) }

// Ask requests an object from a host of the current configuration.
func (e *Engine) Ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	return e.ask(ctx, host, r, take)
}

// The fields that tests replace.
func (e *Engine) Get() *Asking             { return &e.get }
func (e *Engine) Now() *func() time.Time   { return &e.now }
func (e *Engine) Cooldown() *time.Duration { return &e.cooldown }
func (e *Engine) Rehash() *Rehashing       { return &e.rehash }
func (e *Engine) Synced() *func()          { return &e.synced }

// KeepKeys is Keep for the keys of rows.
func (e *Engine) KeepKeys(ctx context.Context, do asset.Action, keys []string) (asset.KeepResult, error) {
	return e.keep(ctx, do, keys)
}
