package wiring

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/member"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// All returns all services in the order in which they are built, recovered and started. A
// service comes after those that it uses.
func All() []Service {
	return []Service{
		registryService(), ledgerService(), walletService(),
		rewarderService(),
		edgeService(),
		indexService(),
		fleetService(),
		consoleService(),
	}
}

// Declare declares the buckets of every service to a store that no node uses. A file records the
// last declarations; a bucket that is not recorded is not covered by the state hash and the checks.
func Declare(s *store.Store) {
	s.Declare(nodeName, tokens.Bucket)
	member.DeclareBuckets(s)
	for _, one := range All() {
		one.declare(s)
	}
}

// Migrations returns the migrations from older schemas to the schema of this program.
func Migrations() []store.Migration {
	var unsummed []*store.Bucket
	for _, s := range All() {
		unsummed = append(unsummed, s.unsummed...)
	}
	return []store.Migration{
		{From: 1, Make: unsummed, Step: store.AddSums(unsummed)},
		{From: 4, Make: []*store.Bucket{tables.Scales}},
		{From: 5}, // rows of earlier schemas are those of objects and packs that were not checked yet
		{From: 6, Make: tables.PeriodBuckets()},
	}
}

// RowChecks returns checks that read every row of the guest services, except the registry, which
// has its own verb.
func RowChecks(ctx context.Context) (checks []store.Check) {
	for _, s := range All() {
		if s.Guest && s.Checks != nil && s.Name != "registry" {
			checks = append(checks, s.Checks(ctx)...)
		}
	}
	return checks
}

// Wire builds the engines of the services that cfg enables.
func Wire(e Env, cfg *config.Config) *Set {
	n := &Set{Env: e, log: e.Log.Named(nodeName)}
	for _, s := range All() {
		if s.IsOn(cfg) {
			n.engines = append(n.engines, Running{Service: s, Engine: s.build(n, cfg)})
		} else {
			s.declare(n.Store)
		}
	}
	return n
}

// DrainDeadline returns the longest drain deadline of the enabled services.
func DrainDeadline(cfg *config.Config) time.Duration {
	most := drainLeast
	for _, s := range All() {
		if s.IsOn(cfg) {
			most = max(most, s.DrainWithin(cfg))
		}
	}
	return most
}

// CloseIntakes closes the queues that handlers feed.
func CloseIntakes(c *flow.Catalog) {
	for _, s := range All() {
		if s.Drain != nil {
			c.CloseFedBy(s.Name, flow.HTTP)
		}
	}
}

// OutcomeOf returns the outcome of err, first by the rules of the services.
func OutcomeOf(err error) process.Outcome {
	for _, s := range All() {
		if s.Outcome != nil {
			if out, own := s.Outcome(err); own {
				return out
			}
		}
	}
	return process.OutcomeOf(err)
}
