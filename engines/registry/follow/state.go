package follow

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// States of a follower. In all but FollowOK and FollowWaiting the readiness key follow_ok fails,
// and the last sound version is served.
const (
	OK       = "ok"
	Waiting  = "waiting"  // the last round did not end, or the hub covers no version yet
	Stale    = "stale"    // the newest checkpoint is older than follow.max_age
	Fork     = "fork"     // the hub has signed a log that does not continue the one seen here
	Rollback = "rollback" // the hub serves less than was seen here
	Unsound  = "unsound"  // the log of the hub does not verify
	Behind   = "horizon"  // the hub has pruned the versions that are missing here
)

func faultf(state, format string, args ...any) error {
	return &tables.FollowFault{State: state, Detail: fmt.Sprintf(format, args...)}
}

// Age returns the time since the hub signed the newest checkpoint that was read. It is false before
// the first checkpoint.
func (f *Follower) Age() (age time.Duration, known bool) {
	last := f.deps.Published.Latest.Load()
	if last == nil {
		return 0, false
	}
	return max(0, f.deps.Clock.Wall().Sub(last.At)), true
}

// Status describes the follower.
func (f *Follower) Status() *document.FollowStatus {
	out := &document.FollowStatus{Hub: f.hub.URL(), State: OK, Version: f.head().Head.Version}
	age, _ := f.Age()
	out.Age = int64(age / time.Second)
	err := f.OK()
	if fault, ok := errors.AsType[*tables.FollowFault](err); ok {
		out.State, out.Detail = fault.State, fault.Detail
	} else if lost := f.lost.Load(); lost != nil {
		out.State, out.Detail = Waiting, *lost
	}
	return out
}

// OK returns the reason why a follower must not be relied on, or nil. A hub that does not
// answer is no reason until the newest checkpoint is older than follow.max_age.
func (f *Follower) OK() error {
	if fault := f.fault.Load(); fault != nil {
		return fault
	}
	age, known := f.Age()
	most := f.deps.Keeper.Rule().MaxAge
	switch {
	case !known && f.lost.Load() != nil:
		return faultf(Waiting, "nothing was read from %s yet: %s", f.hub.URL(), *f.lost.Load())
	case !known:
		return faultf(Waiting, "nothing was read from %s yet", f.hub.URL())
	case age > most:
		return faultf(Stale, "the newest checkpoint of %s was signed %s ago, registry.follow.max_age is %s",
			f.hub.URL(), unit.Short(age), unit.Short(most))
	}
	return nil
}

// event returns the row of the store's audit chain about a fault of the hub, or its end.
func (f *Follower) event(fault *tables.FollowFault) store.Event {
	note := store.Event{
		Event: "registry.follow", Decision: "allow", Reason: OK,
		Detail: map[string]string{"hub": f.hub.URL(), "version": fmt.Sprint(f.head().Head.Version)},
	}
	if fault != nil {
		note.Decision, note.Reason = "deny", fault.State
		note.Detail["detail"] = fault.Detail
		note.Detail["checkpoint"] = string(fault.Checkpoint)
	}
	return note
}
