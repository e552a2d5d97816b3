package appliance

import (
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/tokens"
	"ronbox/appliance/unit"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/node"
	"ronbox/store"
)

// services are all there are, in the order in which they are built, recovered and started: one stands behind those that it uses.
func services() []service {
	return []service{
		registryService(), ledgerService(), walletService(),
		rewarderService(),
		edgeService(),
		indexService(),
	}
}

// service tells the node all about an engine: one literal in the file of its name. A hook that is nil does nothing. In the life of a node
// they are called in this order:
//
//	build            New: nothing is open, nothing is started
//	Recover, ensure  the file is open; an error ends the start, unless a guest's rows are damaged
//	Tasks            are started, then the gate opens
//	Reload, ensure, jobs, Purge, checks
//	                 while it serves, each by one task or call at a time; a failure is logged, the engine goes on
//	drained          its tasks have ended, within its drain deadline
//	end              before the lanes of the store close
//	Close            no task or caller is left, the file is still open; a failure is logged
//
// Of several services each step is taken in the order of services, but that they drain side by side and end in reverse.
type service struct {
	name string // in metrics, tasks, limits, probes and problem URNs

	// on reports whether it runs. Else its buckets stay declared, so that the file keeps its rows; nil: it always runs.
	on func(*config.Config) bool
	// drain is how long its tasks get to finish the jobs that handlers have queued. nil: handlers queue nothing, and its tasks end at once.
	drain   func(*config.Config) unit.Duration
	buckets []*store.Bucket
	// unsummed are those of the buckets whose rows have no checksum in a file of schema 1.
	unsummed []*store.Bucket
	// guest marks a service that no other one needs. If its state is damaged it is shut out, and the node runs without it.
	guest bool
	// build makes the engine. It opens and starts nothing.
	build func(*Node, *config.Config) engine

	// ensure makes things in the file that the current configuration asks for: before the gate opens, after a reload, once a restored file is
	// accepted, and from a job of the janitor.
	ensure func(context.Context, *Node) error
	jobs   func(*Node, time.Time) []*job // of the janitor
	// drained is called when its tasks have drained and none was aborted, until ctx ends; also while it is off.
	drained func(context.Context, *Node)
	// end stops the intake of calls by other engines, before the lanes of the store close.
	end func(context.Context, *Node)

	api    func(*Node) httpapi.Service         // its part of the HTTP surface
	limits func(*config.Config) httpapi.Limits // of its routes

	checks  func(context.Context) []store.Check             // its steps of a check of the file: every row of every bucket
	init    func(context.Context, *Node, *InitResult) error // its part of init --dev
	status  func(*Node, *nodeapi.Status)                    // its part of /status
	outcome func(error) (outcome, bool)                     // its own errors that end a start

	schema string // of the documents that it takes and signs: its row in /version and in snapshots
	format uint64 // of its rows in the file: its row in /version; 0: none
	cache  string // the label kind of its purges
}

// engine is the running part of a service.
type engine interface {
	Tasks() []flow.Task
	Recover(context.Context) error // reads its state from the file
	Reload(*config.Config)         // takes new values; does not wait
	Purge()                        // empties its caches
	Close(context.Context) error   // frees its memory, once its tasks and callers are gone
}

// running is a service that is on.
type running struct {
	service
	engine
	damage error // met by Recover: the service is shut out, and of its engine only Close is called
}

// isOn reports whether cfg has the service run.
func (s service) isOn(cfg *config.Config) bool { return s.on == nil || s.on(cfg) }

// drainLeast is the deadline of a service that has nothing to finish.
const drainLeast = time.Second

// drainWithin is its drain deadline under the node's ceiling.
func (s service) drainWithin(cfg *config.Config) time.Duration {
	if s.drain == nil {
		return max(drainLeast, cfg.Node.AbortGrace.D())
	}
	return min(s.drain(cfg).D(), cfg.Node.DrainCap.D())
}

// Declare names the buckets of every service to a store on which no node runs: a file records the buckets that were declared last, and one that
// is not recorded is no part of its state hash or of its checks.
func Declare(s *store.Store) {
	s.Declare(ownService, tokens.Bucket)
	for _, one := range services() {
		one.declare(s)
	}
}

// Migrations bring the file of an older schema to that of this program.
func Migrations() []store.Migration {
	var unsummed []*store.Bucket
	for _, s := range services() {
		unsummed = append(unsummed, s.unsummed...)
	}
	return []store.Migration{{From: 1, Make: unsummed, Step: store.AddSums(unsummed)}}
}

// RowChecks read every row of the services whose verbs have no proof of their own to show.
func RowChecks(ctx context.Context) (checks []store.Check) {
	for _, s := range services() {
		if s.guest && s.checks != nil && s.name != "registry" {
			checks = append(checks, s.checks(ctx)...)
		}
	}
	return checks
}

func (s service) declare(to *store.Store) {
	if len(s.buckets) > 0 {
		to.Declare(s.name, s.buckets...)
	}
}

// buildEngines builds the engines that are on.
func (n *Node) buildEngines(cfg *config.Config) {
	for _, s := range services() {
		if s.isOn(cfg) {
			n.engines = append(n.engines, running{service: s, engine: s.build(n, cfg)})
		} else {
			s.declare(n.store)
		}
	}
}

// engineOf is the engine of a type, the zero value while its service is off.
func engineOf[E engine](n *Node) (e E) {
	for _, r := range n.engines {
		if e, ok := r.engine.(E); ok {
			return e
		}
	}
	return e
}

// recoverEngines brings the state of every engine back from the file. A guest whose rows are damaged is shut out.
func (n *Node) recoverEngines(ctx context.Context) error {
	for i, r := range n.engines {
		err := r.Recover(ctx)
		if err != nil && r.guest && errors.Is(err, store.ErrCorrupt) && n.store.Err() == nil {
			n.engines[i].damage = err
			n.shutOut(r.name, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keyData is the readiness key of a service whose rows are damaged.
const keyData = "data"

// shutOut takes a service that cannot recover out of the node: its requests are refused, its tasks are not started, and its readiness keys
// count for the service alone.
func (n *Node) shutOut(name string, damage error) {
	n.board.Add(obs.Probe{Service: name, Key: keyData, Plane: obs.ReadPlane})
	n.board.Set(name, keyData, damage)
	n.board.Soften(name)
	n.server.ShutOut(name)
	n.log.Error("service_shut_out", "name", name, "reason", damage.Error(), "effect", "the other services run",
		"next", "stop the node, see `ronbox db verify`, restore a snapshot with `ronbox db restore`")
}

// recovered lists the engines that are not shut out.
func (n *Node) recovered() []running {
	return slices.DeleteFunc(slices.Clone(n.engines), func(r running) bool { return r.damage != nil })
}

// ensureEngines has every engine make what the configuration asks for.
func (n *Node) ensureEngines(ctx context.Context) error {
	for _, r := range n.recovered() {
		if r.ensure != nil {
			if err := r.ensure(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// ensureAgain is ensureEngines for a configuration that is current already, or a file that takes writes again. A failure is logged.
func (n *Node) ensureAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := n.ensureEngines(ctx); err != nil {
		n.log.Warn("not_ensured", "reason", err.Error(), "next", "it is tried again every "+sweepEvery.String())
	}
}

// startEngines starts the tasks of every engine.
func (n *Node) startEngines() {
	for _, r := range n.recovered() {
		n.sup.Start(n.countLives(r.Tasks()...)...)
	}
}

// reloadEngines has every engine take new values.
func (n *Node) reloadEngines(c *config.Config) {
	for _, r := range n.recovered() {
		r.Reload(c)
	}
}

// closeIntakes closes the queues that handlers feed.
func (n *Node) closeIntakes() {
	for _, s := range services() {
		if s.drain != nil {
			n.catalog.CloseFedBy(s.name, flow.HTTP)
		}
	}
}

// drainDeadline is the longest that any service drains.
func drainDeadline(cfg *config.Config) time.Duration {
	most := drainLeast
	for _, s := range services() {
		if s.isOn(cfg) {
			most = max(most, s.drainWithin(cfg))
		}
	}
	return most
}

// drainEngines lets the services finish their accepted jobs, side by side, each by its own clock, until ctx ends. It returns how many
// tasks had to be aborted.
func (n *Node) drainEngines(ctx context.Context) (aborted int) {
	all, cfg := services(), n.conf()
	left := make([]int, len(all))
	_ = flow.Fan(ctx, len(all), func(ctx context.Context, leg int) error { // no leg fails
		s := all[leg]
		left[leg] = n.sup.Drain(s.name, s.drainWithin(cfg), n.grace())
		if left[leg] == 0 && s.drained != nil {
			s.drained(ctx, n)
		}
		return nil
	})
	for _, one := range left {
		aborted += one
	}
	return aborted
}

// abortEngines cancels the tasks of every engine, side by side.
func (n *Node) abortEngines(ctx context.Context, grace time.Duration) {
	_ = flow.Fan(ctx, len(n.engines), func(_ context.Context, leg int) error { // no leg fails
		n.sup.Drain(n.engines[leg].name, 0, grace)
		return nil
	})
}

// endEngines ends the calls between engines, before the lanes of the store close.
func (n *Node) endEngines(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.grace())
	defer cancel()
	for _, r := range slices.Backward(n.recovered()) {
		if r.end != nil {
			r.end(ctx, n)
		}
	}
}

// closeEngines frees the engines' memory. No task or caller of theirs is left.
func (n *Node) closeEngines(ctx context.Context) {
	for _, r := range n.engines {
		if err := r.Close(ctx); err != nil {
			n.log.Warn("engine was not closed", "engine", r.name, "reason", err.Error())
		}
	}
}
