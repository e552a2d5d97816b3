package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/trace"
)

var errDetached = errors.New("publisher is not attached")

// announce sends synced versions to those who follow the log, and counts them. before is HEAD
// without them. It must not wait.
func (e *Engine) announce(before *tables.HeadView, versions []document.Update, took time.Duration) {
	for _, v := range versions {
		e.committed.Publish(v)
		e.m.commitSeconds(took.Seconds())
	}
	e.m.accepted(len(versions))
	e.m.commits(len(versions))
	if now := e.Head().Signers; now != before.Signers {
		e.m.signers(now)
	}
}

// runPublisher sends each new version to event streams, in order. It never delays the pipeline:
// events lost to lag are counted and skipped, because a stream that finds a gap goes on from HEAD.
func (e *Engine) runPublisher(ctx context.Context) error {
	sub := e.committed.Subscribe(taskPublisher)
	defer sub.Close()
	if err := e.tellHead(ctx); err != nil {
		return fmt.Errorf("tell of HEAD: %w", err)
	}
	e.board.Set(service, keyBusAttached, nil)
	defer e.board.Set(service, keyBusAttached, errDetached)
	return e.tellAll(ctx, sub)
}

// tellAll sends the versions of sub until the bus is closed or ctx ends.
func (e *Engine) tellAll(ctx context.Context, sub *flow.Subscription[document.Update]) error {
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
		e.tell(ctx, ev)
	}
}

// tellHead sends HEAD if it has moved while no publisher was attached.
func (e *Engine) tellHead(ctx context.Context) error {
	head := e.Head().Head.Version
	if head <= e.told.Load() {
		return nil
	}
	missed, err := e.Updates(ctx, head, head)
	if err != nil {
		return err
	}
	e.tell(ctx, missed[0])
	return nil
}

// tell sends a version, unless it was sent before or updates are off.
func (e *Engine) tell(ctx context.Context, ev document.Update) {
	if ev.Version <= e.told.Load() || e.Emits() != nil {
		return
	}
	_, span := trace.Start(ctx, e.tracer, "emit_bus", ev.CorrID)
	span.About("", ev.Version, ev.PayloadB3)
	e.updated.Publish(ev)
	e.told.Store(ev.Version)
	span.End(nil)
}
