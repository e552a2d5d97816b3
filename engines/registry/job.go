package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
)

// job is one request on its way through the pipeline. It is answered exactly once.
type job struct {
	ctx    context.Context
	req    request
	actor  engines.Actor
	corrID string
	queued time.Time
	reply  *flow.Reply[answer]
}

// submit queues a request and waits for its answer. It never waits for room.
func (e *Engine) submit(ctx context.Context, q *flow.Queue[*job], req request, actor engines.Actor, corrID string) (answer, error) {
	j := &job{ctx: ctx, req: req, actor: actor, corrID: corrID, queued: e.now(), reply: flow.NewReply[answer]()}
	if err := q.TrySend(j); err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), err)
	}
	a, err := j.reply.Wait(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), e.waitError(req.name(), err))
	}
	return a, nil
}

// waitError tells a deadline that passed in the queue, where nothing was written, from the other outcomes.
func (e *Engine) waitError(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["commit"](1)
		return &TimeoutError{Op: op}
	}
	if errors.Is(err, flow.ErrUnknown) {
		e.m.timeouts["commit"](1)
	}
	return err
}
