package wiring

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/ledger/period"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// nodeName is the name of the node among the services.
const nodeName = "node"

// Set holds the enabled services of a node, in the order of services.
type Set struct {
	Env
	log     hclog.Logger // of the node
	front   Front        // set by Attach
	engines []Running
}

// Env is the node as its services use it.
type Env struct {
	Boot    *config.Config        // given at the start, for keys that need a restart
	Config  func() *config.Config // the current one
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Tracer  *obs.Tracer
	Store   *store.Store
	Phase   *flow.Watch[flow.Phase]

	Now     func() time.Time // of everything that is stored
	Wall    func() time.Time // of everything that others sign or check
	Settled func() bool      // reports whether Now goes by the wall clock
	ClockOK func() bool      // reports whether the wall clock is near Now

	Note     func(context.Context, store.Event) // appends an audit row; the action stands without it
	Progress func(stage string, done, total int64)
	StandsBy func() bool                // the node is a member that does not lead
	Derive   func(use string) b3.Digest // a key of the node secret
	Ready    func() error               // returns an error before tokens are known
	Version  func() wire.VersionInfo    // of the program and its services
	RunStep  func(step string)          // called at each step of a rewarder run; may be nil
	Archive  period.Archive             // copies of the files of closed periods; may be nil

	Clustered bool                         // the node is a member of a cluster
	Members   content.Members              // content stores of the other members; nil: a node alone
	Outage    func() (time.Duration, bool) // age of what a member without a leader knows
}

// Front is the HTTP server of the node.
type Front interface {
	URL() string
	Addr() string
	Handler() http.Handler
	Certified(host string) bool
	ShutOut(service string)
}

// Attach gives the services the server of the node, which is built after them.
func (n *Set) Attach(f Front) { n.front = f }

// Engines returns the enabled engines.
func (n *Set) Engines() []Running { return n.engines }

// engineOf returns the engine of type E, or the zero value if its service is off.
func engineOf[E Engine](n *Set) (e E) {
	for _, r := range n.engines {
		if e, ok := r.Engine.(E); ok {
			return e
		}
	}
	return e
}

// Recover recovers the state of every engine from the file. A guest with damaged rows is
// shut out.
func (n *Set) Recover(ctx context.Context) error {
	for i, r := range n.engines {
		err := r.Recover(ctx)
		if err == nil && r.Guest {
			err = n.checkNames(ctx, r)
		}
		if err != nil && r.Guest && errors.Is(err, store.ErrCorrupt) && n.Store.Err() == nil {
			n.engines[i].damage = err
			n.shutOut(r.Name, err)
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
func (n *Set) checkNames(ctx context.Context, r Running) error {
	return n.Store.View(ctx, func(rd store.Reader) error { return store.CheckNames(rd, bootNames, r.Buckets...) })
}

// keyData is the readiness key of a service with damaged rows.
const keyData = "data"

// shutOut disables a service that cannot recover: its requests are refused, its tasks are not
// started, and its readiness keys affect only the service.
func (n *Set) shutOut(name string, damage error) {
	n.Board.Add(obs.Probe{Service: name, Key: keyData, Plane: obs.ReadPlane})
	n.Board.Set(name, keyData, damage)
	n.Board.Soften(name)
	n.front.ShutOut(name)
	n.log.Error("service_shut_out", "name", name, "reason", damage.Error(), "effect", "the other services run",
		"next", "stop the node, see `ronbox db verify`, restore a snapshot with `ronbox db restore`")
}

// Recovered returns the engines that are not shut out.
func (n *Set) Recovered() []Running {
	return slices.DeleteFunc(slices.Clone(n.engines), func(r Running) bool { return r.damage != nil })
}

// Ensure lets every engine create the objects that the configuration requires.
func (n *Set) Ensure(ctx context.Context) error {
	for _, r := range n.Recovered() {
		if r.ensure != nil {
			if err := r.ensure(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// End ends the calls between engines before the lanes of the store close.
func (n *Set) End(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.Boot.Node.AbortGrace.D())
	defer cancel()
	for _, r := range slices.Backward(n.Recovered()) {
		if r.end != nil {
			r.end(ctx, n)
		}
	}
}

// Close frees the memory of the engines. Their tasks and callers must have ended.
func (n *Set) Close(ctx context.Context) {
	for _, r := range n.engines {
		if err := r.Close(ctx); err != nil {
			n.log.Warn("engine was not closed", "engine", r.Name, "reason", err.Error())
		}
	}
}
