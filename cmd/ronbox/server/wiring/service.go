package wiring

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Service describes an engine to the node. Each service is one literal in the file of its name. A
// nil hook is skipped. The node calls the hooks in this order:
//
//	build            New: opens and starts nothing
//	Recover, ensure  the file is open; an error ends the start, unless a guest's rows are damaged
//	Tasks            are started, then the gate opens
//	Reload, ensure, jobs, Purge, checks
//	                 while it serves, each by one task or call at a time; a failure is logged
//	drained          the tasks have ended within the drain deadline
//	end              before the lanes of the store close
//	Close            no task or caller is left, the file is still open; a failure is logged
//
// On a member of a cluster that does not lead, Stand is called instead of Recover if the engine has
// it (stander in copies.go of package server), and Recover after the election.
//
// Each step runs in the order of services, except that services drain in parallel and end in
// reverse order.
type Service struct {
	Name string // in metrics, tasks, limits, probes and problem URNs

	// on reports whether the service is enabled. The buckets of a disabled service stay declared,
	// so that the file keeps its rows. If on is nil the service is always enabled.
	on func(*config.Config) bool
	// Drain returns the time for the tasks to finish the jobs that handlers have queued. If it is
	// nil, handlers queue nothing and the tasks end immediately.
	Drain   func(*config.Config) unit.Duration
	Buckets []*store.Bucket
	// unsummed lists the buckets with rows that have no checksum in a file of schema 1.
	unsummed []*store.Bucket
	// Guest marks a service that no other service needs. If its state is damaged, it is shut out
	// and the node runs without it.
	Guest bool
	// build builds the engine. It opens and starts nothing.
	build func(*Set, *config.Config) Engine

	// ensure creates the objects in the file that the current configuration requires. It runs
	// before the gate opens, after a reload, after a restored file is accepted, and from a job of
	// the janitor.
	ensure func(context.Context, *Set) error
	Jobs   func(*Set, time.Time) []*upkeep.Job // of the janitor
	// Drained is called after the tasks have drained without an abort, until ctx ends, also if the
	// service is disabled.
	Drained func(context.Context, *Set)
	// end stops calls from other engines before the lanes of the store close.
	end func(context.Context, *Set)

	API    func(*Set) httpapi.Service          // HTTP routes of the service
	Limits func(*config.Config) httpapi.Limits // limits of its routes

	// Checks of every row of every bucket
	Checks  func(context.Context) []store.Check
	Init    func(context.Context, *Set, *initdir.Founded) error // runs in init --dev
	Status  func(*Set, *nodeapi.Status)                         // adds to /status
	Outcome func(error) (process.Outcome, bool)                 // outcome of its own errors that end a start

	Schema string // version of its documents, for /version and snapshots
	Format uint64 // version of its rows, for /version; 0: none
	Cache  string // label kind of its cache purges
}

// Engine is the running part of a service.
type Engine interface {
	Tasks() []flow.Task
	Recover(context.Context) error // reads the state from the file
	Reload(*config.Config)         // applies new values; does not block
	Purge()                        // empties the caches
	Close(context.Context) error   // frees the memory after all tasks and callers have ended
}

// Running is an enabled service and its engine.
type Running struct {
	Service
	Engine
	damage error // error of Recover: the service is shut out, and only Close is called
}

// IsOn reports whether cfg enables the service.
func (s Service) IsOn(cfg *config.Config) bool { return s.on == nil || s.on(cfg) }

// drainLeast is the drain deadline of a service without one of its own.
const drainLeast = time.Second

// DrainWithin returns the drain deadline of the service, capped by node.drain_cap.
func (s Service) DrainWithin(cfg *config.Config) time.Duration {
	if s.Drain == nil {
		return max(drainLeast, cfg.Node.AbortGrace.D())
	}
	return min(s.Drain(cfg).D(), cfg.Node.DrainCap.D())
}

func (s Service) declare(to *store.Store) {
	if len(s.Buckets) > 0 {
		to.Declare(s.Name, s.Buckets...)
	}
}

// StreamLimits returns the limits of the event streams of each service.
func StreamLimits(cfg *config.Config) httpapi.StreamLimits {
	sse := cfg.Registry.SSE
	return httpapi.StreamLimits{
		Max:        sse.MaxClients,
		PerNetwork: sse.MaxPerIP,
		Replay:     sse.ReplayMax,
		Ping:       sse.Ping.D(),
	}
}

// RetryEvery is the time after which a node tries again to create what its configuration requires.
const RetryEvery = time.Minute
