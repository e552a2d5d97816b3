package registry

import (
	"errors"
	"fmt"
	"time"

	"ronbox/store"
)

// States of a follower. In all but FollowOK and FollowWaiting the readiness key follow_ok fails,
// and the last sound version is served.
const (
	FollowOK       = "ok"
	FollowWaiting  = "waiting"  // the last round did not end, or the hub covers no version yet
	FollowStale    = "stale"    // the newest checkpoint is older than follow.max_age
	FollowFork     = "fork"     // the hub has signed a log that does not continue the one seen here
	FollowRollback = "rollback" // the hub serves less than was seen here
	FollowUnsound  = "unsound"  // the log of the hub does not verify
	FollowHorizon  = "horizon"  // the hub has pruned the versions that are missing here
)

func faultf(state, format string, args ...any) error {
	return &FollowFault{State: state, Detail: fmt.Sprintf(format, args...)}
}

// Follows returns a *FollowerError if the node follows another one, else nil.
func (e *Engine) Follows() error {
	if e.follow == nil {
		return nil
	}
	return &FollowerError{Hub: e.follow.hub.URL()}
}

// Age returns the time since the hub signed the newest checkpoint that was read. It is false on a
// node that follows no other, and before the first checkpoint.
func (e *Engine) Age() (age time.Duration, known bool) {
	last := e.pub.Latest.Load()
	if e.follow == nil || last == nil {
		return 0, false
	}
	return max(0, e.wall().Sub(last.At)), true
}

// followStatus returns the state of a follower, nil on a node that follows no other.
func (e *Engine) followStatus() *FollowStatus {
	if e.follow == nil {
		return nil
	}
	out := &FollowStatus{Hub: e.follow.hub.URL(), State: FollowOK, Version: e.Head().Head.Version}
	age, _ := e.Age()
	out.Age = int64(age / time.Second)
	err := e.followOK()
	if fault, ok := errors.AsType[*FollowFault](err); ok {
		out.State, out.Detail = fault.State, fault.Detail
	} else if lost := e.follow.lost.Load(); lost != nil {
		out.State, out.Detail = FollowWaiting, *lost
	}
	return out
}

// followOK returns the reason why a follower must not be relied on, or nil. A hub that does not
// answer is no reason until the newest checkpoint is older than follow.max_age.
func (e *Engine) followOK() error {
	if fault := e.follow.fault.Load(); fault != nil {
		return fault
	}
	age, known := e.Age()
	most := e.live().Follow.MaxAge.D()
	switch {
	case !known && e.follow.lost.Load() != nil:
		return faultf(FollowWaiting, "nothing was read from %s yet: %s", e.follow.hub.URL(), *e.follow.lost.Load())
	case !known:
		return faultf(FollowWaiting, "nothing was read from %s yet", e.follow.hub.URL())
	case age > most:
		return faultf(FollowStale, "the newest checkpoint of %s was signed %s ago, registry.follow.max_age is %s",
			e.follow.hub.URL(), age.Round(time.Second), most)
	}
	return nil
}

// followEvent returns the row of the store's audit chain about a fault of the hub, or its end.
func (e *Engine) followEvent(fault *FollowFault) store.Event {
	note := store.Event{
		Event: "registry.follow", Decision: "allow", Reason: FollowOK,
		Detail: map[string]string{"hub": e.follow.hub.URL(), "version": fmt.Sprint(e.Head().Head.Version)},
	}
	if fault != nil {
		note.Decision, note.Reason = "deny", fault.State
		note.Detail["detail"] = fault.Detail
		note.Detail["checkpoint"] = string(fault.Checkpoint)
	}
	return note
}
