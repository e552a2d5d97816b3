package registry

import (
	"context"
	"errors"

	"ronbox/appliance/flow"
)

var errDetached = errors.New("publisher is not attached")

// runPublisher tells the node of each new version, in order. It never holds up the pipeline: what it misses is counted and
// left out, because HEAD is all that its readers need.
func (e *Engine) runPublisher(ctx context.Context) error {
	sub := e.committed.Subscribe(taskPublisher)
	defer sub.Close()
	e.board.Set(service, keyBusAttached, nil)
	defer e.board.Set(service, keyBusAttached, errDetached)
	for {
		ev, lagged, err := sub.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		if lagged > 0 {
			e.m.overflow(int(lagged))
		}
		if e.live().Bus.EmitUpdates {
			_, span := e.span(ctx, "emit_bus", ev.CorrID)
			span.about("", ev.Version, ev.PayloadB3)
			e.updated.Publish(Updated{Version: ev.Version, B3: ev.PayloadB3})
			span.end(nil)
		}
	}
}
