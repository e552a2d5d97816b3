package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/member"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines/ledger/tables"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// services returns all services in the order in which they are built, recovered and started. A
// service comes after those that it uses.
func services() []service {
	return []service{
		registryService(), ledgerService(), walletService(),
		rewarderService(),
		edgeService(),
		indexService(),
		fleetService(),
		consoleService(),
	}
}

// service describes an engine to the node. Each service is one literal in the file of its name. A
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
// it (stander in copies.go), and Recover after the election.
//
// Each step runs in the order of services, except that services drain in parallel and end in
// reverse order.
type service struct {
	name string // in metrics, tasks, limits, probes and problem URNs

	// on reports whether the service is enabled. The buckets of a disabled service stay declared,
	// so that the file keeps its rows. If on is nil the service is always enabled.
	on func(*config.Config) bool
	// drain returns the time for the tasks to finish the jobs that handlers have queued. If it is
	// nil, handlers queue nothing and the tasks end immediately.
	drain   func(*config.Config) unit.Duration
	buckets []*store.Bucket
	// unsummed lists the buckets with rows that have no checksum in a file of schema 1.
	unsummed []*store.Bucket
	// guest marks a service that no other service needs. If its state is damaged, it is shut out
	// and the node runs without it.
	guest bool
	// build builds the engine. It opens and starts nothing.
	build func(*Node, *config.Config) engine

	// ensure creates the objects in the file that the current configuration requires. It runs
	// before the gate opens, after a reload, after a restored file is accepted, and from a job of
	// the janitor.
	ensure func(context.Context, *Node) error
	jobs   func(*Node, time.Time) []*upkeep.Job // of the janitor
	// drained is called after the tasks have drained without an abort, until ctx ends, also if the
	// service is disabled.
	drained func(context.Context, *Node)
	// end stops calls from other engines before the lanes of the store close.
	end func(context.Context, *Node)

	api    func(*Node) httpapi.Service         // HTTP routes of the service
	limits func(*config.Config) httpapi.Limits // limits of its routes

	// checks of every row of every bucket
	checks  func(context.Context) []store.Check
	init    func(context.Context, *Node, *initdir.Founded) error // runs in init --dev
	status  func(*Node, *nodeapi.Status)                         // adds to /status
	outcome func(error) (process.Outcome, bool)                  // outcome of its own errors that end a start

	schema string // version of its documents, for /version and snapshots
	format uint64 // version of its rows, for /version; 0: none
	cache  string // label kind of its cache purges
}

// engine is the running part of a service.
type engine interface {
	Tasks() []flow.Task
	Recover(context.Context) error // reads the state from the file
	Reload(*config.Config)         // applies new values; does not block
	Purge()                        // empties the caches
	Close(context.Context) error   // frees the memory after all tasks and callers have ended
}

// running is an enabled service and its engine.
type running struct {
	service
	engine
	damage error // error of Recover: the service is shut out, and only Close is called
}

// isOn reports whether cfg enables the service.
func (s service) isOn(cfg *config.Config) bool { return s.on == nil || s.on(cfg) }

// drainLeast is the drain deadline of a service without one of its own.
const drainLeast = time.Second

// drainWithin returns the drain deadline of the service, capped by node.drain_cap.
func (s service) drainWithin(cfg *config.Config) time.Duration {
	if s.drain == nil {
		return max(drainLeast, cfg.Node.AbortGrace.D())
	}
	return min(s.drain(cfg).D(), cfg.Node.DrainCap.D())
}

// Declare declares the buckets of every service to a store that no node uses. A file records the
// last declarations; a bucket that is not recorded is not covered by the state hash and the checks.
func Declare(s *store.Store) {
	s.Declare(ownService, tokens.Bucket)
	member.DeclareBuckets(s)
	for _, one := range services() {
		one.declare(s)
	}
}

// Migrations returns the migrations from older schemas to the schema of this program.
func Migrations() []store.Migration {
	var unsummed []*store.Bucket
	for _, s := range services() {
		unsummed = append(unsummed, s.unsummed...)
	}
	return []store.Migration{
		{From: 1, Make: unsummed, Step: store.AddSums(unsummed)},
		{From: 4, Make: []*store.Bucket{tables.Scales}},
	}
}

// RowChecks returns checks that read every row of the guest services, except the registry, which
// has its own verb.
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

// buildEngines builds the enabled engines.
func (n *Node) buildEngines(cfg *config.Config) {
	for _, s := range services() {
		if s.isOn(cfg) {
			n.engines = append(n.engines, running{service: s, engine: s.build(n, cfg)})
		} else {
			s.declare(n.store)
		}
	}
}

// engineOf returns the engine of type E, or the zero value if its service is off.
func engineOf[E engine](n *Node) (e E) {
	for _, r := range n.engines {
		if e, ok := r.engine.(E); ok {
			return e
		}
	}
	return e
}

// recoverEngines recovers the state of every engine from the file. A guest with damaged rows is
// shut out.
func (n *Node) recoverEngines(ctx context.Context) error {
	for i, r := range n.engines {
		err := r.Recover(ctx)
		if err == nil && r.guest {
			err = n.checkNames(ctx, r)
		}
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

// bootNames bounds the rows of a bucket whose names are read at boot: some 20 MB of a slow disk.
// `ronbox db verify` reads the names of larger ones.
const bootNames = 100_000

// checkNames returns store.ErrCorrupt if a guest has lost a row.
func (n *Node) checkNames(ctx context.Context, r running) error {
	return n.store.View(ctx, func(rd store.Reader) error { return store.CheckNames(rd, bootNames, r.buckets...) })
}

// keyData is the readiness key of a service with damaged rows.
const keyData = "data"

// shutOut disables a service that cannot recover: its requests are refused, its tasks are not
// started, and its readiness keys affect only the service.
func (n *Node) shutOut(name string, damage error) {
	n.board.Add(obs.Probe{Service: name, Key: keyData, Plane: obs.ReadPlane})
	n.board.Set(name, keyData, damage)
	n.board.Soften(name)
	n.server.ShutOut(name)
	n.log.Error("service_shut_out", "name", name, "reason", damage.Error(), "effect", "the other services run",
		"next", "stop the node, see `ronbox db verify`, restore a snapshot with `ronbox db restore`")
}

// recovered returns the engines that are not shut out.
func (n *Node) recovered() []running {
	return slices.DeleteFunc(slices.Clone(n.engines), func(r running) bool { return r.damage != nil })
}

// ensureEngines lets every engine create the objects that the configuration requires.
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

// ensureAgain is ensureEngines after a reload, or when the file accepts writes again. A failure is
// logged.
func (n *Node) ensureAgain(ctx context.Context) {
	if n.standsBy() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := n.ensureEngines(ctx); err != nil {
		n.log.Warn("not_ensured", "reason", err.Error(), "next", "retried every "+sweepEvery.String())
	}
}

// startEngines starts the tasks of every engine.
func (n *Node) startEngines() {
	for _, r := range n.recovered() {
		n.sup.Start(n.countLives(r.Tasks()...)...)
	}
}

// reloadEngines applies a new configuration to every engine. The engines of a member that stands by
// have no state, and get it when they recover.
func (n *Node) reloadEngines(c *config.Config) {
	if n.standsBy() {
		return
	}
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

// drainDeadline returns the longest drain deadline of the enabled services.
func drainDeadline(cfg *config.Config) time.Duration {
	most := drainLeast
	for _, s := range services() {
		if s.isOn(cfg) {
			most = max(most, s.drainWithin(cfg))
		}
	}
	return most
}

// drainEngines lets the services finish their accepted jobs in parallel, each within its own
// deadline, until ctx ends. It returns the number of tasks that had to be aborted.
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

// abortEngines cancels the tasks of every engine in parallel.
func (n *Node) abortEngines(ctx context.Context, grace time.Duration) {
	_ = flow.Fan(ctx, len(n.engines), func(_ context.Context, leg int) error { // no leg fails
		n.sup.Drain(n.engines[leg].name, 0, grace)
		return nil
	})
}

// endEngines ends the calls between engines before the lanes of the store close.
func (n *Node) endEngines(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.grace())
	defer cancel()
	for _, r := range slices.Backward(n.recovered()) {
		if r.end != nil {
			r.end(ctx, n)
		}
	}
}

// closeEngines frees the memory of the engines. Their tasks and callers must have ended.
func (n *Node) closeEngines(ctx context.Context) {
	for _, r := range n.engines {
		if err := r.Close(ctx); err != nil {
			n.log.Warn("engine was not closed", "engine", r.name, "reason", err.Error())
		}
	}
}

// describeServices registers the metric of the services that run.
func (n *Node) describeServices() {
	for _, s := range services() {
		on := map[bool]float64{true: 1}[s.isOn(n.boot)]
		n.metrics.Gauge("service_on", s.name, func() float64 { return on })
	}
}
