package process

import "ronbox/appliance/flow"

// EventKind is the kind of an event of the lifecycle.
type EventKind int

const (
	EvOpened    EventKind = iota // lock, preflight and open are done, sockets are bound
	EvEnrolled                   // as evOpened, and the file belongs to a cluster
	EvElected                    // the cluster has elected this node to lead
	EvDeposed                    // this node no longer leads, or may not stay a member in this life
	EvRecovered                  // every engine has its state back
	EvDegraded                   // some probe of the table fails
	EvHealed                     // no probe fails
	EvDrain                      // SIGTERM, SIGINT, `ronbox drain`
	EvAbort                      // a second stop signal: stop now
	EvOverdue                    // a service's drain deadline has passed
	EvDrained                    // every engine task has returned or been given up
	EvStraggled                  // a task outlived its abort, or the committer its drain
	EvClosed                     // file and sockets are closed
	EvFailed                     // the node cannot go on; code is the exit code
	EvPoisoned                   // the store's file state is unknown
	eventKinds                   // number of kinds
)

type Event struct {
	Kind EventKind
	Code int // exit code of evFailed; ExitCorrupt or 0 for evPoisoned
}

// State is the state of the lifecycle.
type State struct {
	Phase flow.Phase
	Exit  int // exit code so far
}

// Action is the action of Run on entering a phase.
type Action int

const (
	ActNone    Action = iota
	ActStandby        // committer, wait for the election
	ActRecover        // recover, tasks; before that the committer, unless it runs
	ActServe          // open the gate, and accept connections
	ActDrain          // gate, background tasks, services
	ActAbort          // cancel what still runs
	ActStop           // shut the gate, lanes, servers, file
	ActDie            // end the process without writing
	ActRenew          // cut what runs, then begin the next life
	ActEnd            // everything has ended
)

// Next is the transition function of the lifecycle: pure, of a state and an event. An event that
// has no meaning in a phase leaves the state unchanged.
func Next(s State, e Event) (State, Action) {
	if terminal(s.Phase) {
		return s, ActNone
	}
	if e.Kind == EvPoisoned {
		if e.Code == ExitCorrupt {
			return State{flow.Poisoned, ExitCorrupt}, ActDie
		}
		return State{flow.Poisoned, ExitStorage}, ActDie
	}
	switch s.Phase {
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

func nextBoot(s State, e Event) (State, Action) {
	switch {
	case e.Kind == EvOpened && s.Phase == flow.Booting:
		return State{flow.Recovering, s.Exit}, ActRecover
	case e.Kind == EvEnrolled && s.Phase == flow.Booting:
		return State{flow.Standby, s.Exit}, ActStandby
	case e.Kind == EvElected && s.Phase == flow.Standby:
		return State{flow.Recovering, s.Exit}, ActRecover
	case e.Kind == EvDeposed && s.Phase != flow.Booting:
		return State{flow.Stopping, s.Exit}, ActRenew
	case e.Kind == EvRecovered && s.Phase == flow.Recovering:
		return State{flow.Running, s.Exit}, ActServe
	case e.Kind == EvDrain, e.Kind == EvAbort:
		return State{flow.Stopping, s.Exit}, ActStop
	case e.Kind == EvFailed:
		return State{flow.Stopping, worst(s.Exit, e.Code)}, ActStop
	}
	return s, ActNone
}

func nextServing(s State, e Event) (State, Action) {
	switch e.Kind {
	case EvDegraded:
		return State{flow.Degraded, s.Exit}, ActNone
	case EvHealed:
		return State{flow.Running, s.Exit}, ActNone
	case EvDeposed:
		return State{flow.Stopping, s.Exit}, ActRenew
	case EvDrain:
		return State{flow.Draining, s.Exit}, ActDrain
	case EvAbort:
		return State{flow.Aborting, worst(s.Exit, ExitAborted)}, ActAbort
	case EvFailed:
		return State{flow.Aborting, worst(s.Exit, e.Code)}, ActAbort
	default:
		return s, ActNone
	}
}

func nextLeaving(s State, e Event) (State, Action) {
	switch {
	case e.Kind == EvDrained:
		return State{flow.Stopping, s.Exit}, ActStop
	case e.Kind == EvFailed:
		s.Exit = worst(s.Exit, e.Code)
	case e.Kind == EvDrain, e.Kind == EvAbort, e.Kind == EvOverdue, e.Kind == EvStraggled:
		s.Exit = worst(s.Exit, ExitAborted)
	default:
		return s, ActNone
	}
	if s.Phase == flow.Aborting {
		return s, ActNone
	}
	return State{flow.Aborting, s.Exit}, ActAbort
}

func nextStopping(s State, e Event) (State, Action) {
	switch e.Kind {
	case EvClosed:
		return State{flow.Stopped, s.Exit}, ActEnd
	case EvStraggled:
		return State{s.Phase, worst(s.Exit, ExitAborted)}, ActNone
	case EvFailed:
		return State{s.Phase, worst(s.Exit, e.Code)}, ActNone
	default:
		return s, ActNone
	}
}

// worst returns the more significant exit code: the first failure, else aborted tasks, else clean.
func worst(a, b int) int {
	if a > ExitAborted || b == ExitClean {
		return a
	}
	return b
}
