package server

import "ronbox/appliance/flow"

// eventKind is the kind of an event of the lifecycle.
type eventKind int

const (
	evOpened    eventKind = iota // lock, preflight and open are done, sockets are bound
	evEnrolled                   // as evOpened, and the file belongs to a cluster
	evElected                    // the cluster has elected this node to lead
	evDeposed                    // this node no longer leads, or may not stay a member in this life
	evRecovered                  // every engine has its state back
	evDegraded                   // some probe of the table fails
	evHealed                     // no probe fails
	evDrain                      // SIGTERM, SIGINT, `ronbox drain`
	evAbort                      // a second stop signal: stop now
	evOverdue                    // a service's drain deadline has passed
	evDrained                    // every engine task has returned or been given up
	evStraggled                  // a task outlived its abort, or the committer its drain
	evClosed                     // file and sockets are closed
	evFailed                     // the node cannot go on; code is the exit code
	evPoisoned                   // the store's file state is unknown
	eventKinds                   // number of kinds
)

type event struct {
	kind eventKind
	code int // exit code of evFailed; ExitCorrupt or 0 for evPoisoned
}

// state is the state of the lifecycle.
type state struct {
	phase flow.Phase
	exit  int // exit code so far
}

// action is the action of Run on entering a phase.
type action int

const (
	actNone    action = iota
	actStandby        // committer, wait for the election
	actRecover        // recover, tasks; before that the committer, unless it runs
	actServe          // open the gate
	actDrain          // gate, background tasks, services
	actAbort          // cancel what still runs
	actStop           // shut the gate, lanes, servers, file
	actDie            // end the process without writing
	actRenew          // cut what runs, then begin the next life
	actEnd            // everything has ended
)

// next is the transition function of the lifecycle: pure, of a state and an event. An event that
// has no meaning in a phase leaves the state unchanged.
func next(s state, e event) (state, action) {
	if terminal(s.phase) {
		return s, actNone
	}
	if e.kind == evPoisoned {
		if e.code == ExitCorrupt {
			return state{flow.Poisoned, ExitCorrupt}, actDie
		}
		return state{flow.Poisoned, ExitStorage}, actDie
	}
	switch s.phase {
	case flow.Booting, flow.Standby, flow.Recovering:
		return nextBoot(s, e)
	case flow.Running, flow.Degraded:
		return nextServing(s, e)
	case flow.Draining, flow.Aborting:
		return nextLeaving(s, e)
	default:
		return nextStopping(s, e)
	}
}

func terminal(p flow.Phase) bool { return p == flow.Stopped || p == flow.Poisoned }

func nextBoot(s state, e event) (state, action) {
	switch {
	case e.kind == evOpened && s.phase == flow.Booting:
		return state{flow.Recovering, s.exit}, actRecover
	case e.kind == evEnrolled && s.phase == flow.Booting:
		return state{flow.Standby, s.exit}, actStandby
	case e.kind == evElected && s.phase == flow.Standby:
		return state{flow.Recovering, s.exit}, actRecover
	case e.kind == evDeposed && s.phase != flow.Booting:
		return state{flow.Stopping, s.exit}, actRenew
	case e.kind == evRecovered && s.phase == flow.Recovering:
		return state{flow.Running, s.exit}, actServe
	case e.kind == evDrain, e.kind == evAbort:
		return state{flow.Stopping, s.exit}, actStop
	case e.kind == evFailed:
		return state{flow.Stopping, worst(s.exit, e.code)}, actStop
	}
	return s, actNone
}

func nextServing(s state, e event) (state, action) {
	switch e.kind {
	case evDegraded:
		return state{flow.Degraded, s.exit}, actNone
	case evHealed:
		return state{flow.Running, s.exit}, actNone
	case evDeposed:
		return state{flow.Stopping, s.exit}, actRenew
	case evDrain:
		return state{flow.Draining, s.exit}, actDrain
	case evAbort:
		return state{flow.Aborting, worst(s.exit, ExitAborted)}, actAbort
	case evFailed:
		return state{flow.Aborting, worst(s.exit, e.code)}, actAbort
	default:
		return s, actNone
	}
}

func nextLeaving(s state, e event) (state, action) {
	switch {
	case e.kind == evDrained:
		return state{flow.Stopping, s.exit}, actStop
	case e.kind == evFailed:
		s.exit = worst(s.exit, e.code)
	case e.kind == evDrain, e.kind == evAbort, e.kind == evOverdue, e.kind == evStraggled:
		s.exit = worst(s.exit, ExitAborted)
	default:
		return s, actNone
	}
	if s.phase == flow.Aborting {
		return s, actNone
	}
	return state{flow.Aborting, s.exit}, actAbort
}

func nextStopping(s state, e event) (state, action) {
	switch e.kind {
	case evClosed:
		return state{flow.Stopped, s.exit}, actEnd
	case evStraggled:
		return state{s.phase, worst(s.exit, ExitAborted)}, actNone
	case evFailed:
		return state{s.phase, worst(s.exit, e.code)}, actNone
	default:
		return s, actNone
	}
}

// worst returns the more significant exit code: the first failure, else aborted tasks, else clean.
func worst(a, b int) int {
	if a > ExitAborted || b == ExitClean {
		return a
	}
	return b
}
